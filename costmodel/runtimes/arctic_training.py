"""arctic-training: DeepSpeed's engine under Snowflake's trainer of long sequences.

Files are those of snowflakedb/ArcticTraining at b28638e6 (0.8.1.dev0), below `arctic_training`.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.copy_streams import OffloadPolicy, Place
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes import deepspeed
from trainplan.costmodel.runtimes.deepspeed import DEEPSPEED, OF_GROUPS
from trainplan.costmodel.runtimes.traits import Adapting
from trainplan.costmodel.runtimes.traits.tiling import loss_tiles


@rule(
    "tp",
    "its trainer cuts sequences and no matrices: use tp=1",
    "ArcticTraining config/trainer.py: no key for tensor ranks",
)
def trainer_cuts_no_matrices(job: Job, table: LayoutTable) -> BoolColumn:
    """Sequence parallelism alone is set up by the trainer."""
    return np.asarray(table.tp > 1)


@rule(
    "cp micro_batch_size tiled_loss",
    "its trainer tiles the loss with sequence ranks or kernels of Liger, then always, and else "
    "never: use tiled_loss=true there, or add the option liger=0.6",
    "ArcticTraining trainer/sft_trainer.py, loss",
)
def trainer_tiles_the_loss(job: Job, table: LayoutTable) -> BoolColumn:
    """There is no key for it; one tile is the whole."""
    tiles = (table.cp > 1) | (job.options.liger is not None)
    whole = (table.tiled_loss == 0) & (loss_tiles(job, table) > 1)
    return np.asarray(np.where(tiles, whole, table.tiled_loss == 1))


def unsupported_feature(model: ModelSpec) -> str | None:
    """A tower is not built. Source: model/hf_factory.py."""
    return model.tower.called if model.tower else None


def offload_policy(stage: int, place: Place) -> OffloadPolicy:
    """The engine's, but checkpoints are copied by the stream that computes, the last one, too.

    Source: monkey_patches.py, CheckpointFunctionWithCPUOffload.
    """
    own = deepspeed.offload_policy(stage, place)
    return replace(own, overlaps_checkpoints=False, keeps_last=False)


ARCTIC_TRAINING = replace(
    DEEPSPEED,
    name="arctic-training",
    version="0.8.1.dev0",
    recompute=replace(DEEPSPEED.recompute, stops_early=False),  # transformers 4: reentrant
    # models are made under zero.Init, which MiCS stops at: model/hf_factory.py
    sharding=replace(DEEPSPEED.sharding, in_groups=False),
    optimizers=(("adamw", "fused_adam"),),  # optimizer/adam_factory.py
    offloading=replace(DEEPSPEED.offloading, offload_policy=offload_policy),
    adapting=Adapting(),
    refuses=unsupported_feature,
    rules=(
        *(one for one in DEEPSPEED.rules if one not in OF_GROUPS),
        trainer_cuts_no_matrices,
        trainer_tiles_the_loss,
    ),
)

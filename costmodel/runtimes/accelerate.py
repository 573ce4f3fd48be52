"""accelerate: FSDP2 of Hugging Face models through `parallelism_config`, reductions in 16 bits.

Files are those of huggingface/accelerate at 16cb6eb8, below `src/accelerate`. Between the micro
batches of a step `accumulate` keeps whole gradients unless the script sets `sync_each_batch`, which
is what is priced.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import Trained
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes.adapters import (
    flat_parameters_have_no_mesh,
    quantised_weights_are_replicated,
)
from trainplan.costmodel.runtimes.fsdp import ALONE, FSDP2
from trainplan.costmodel.runtimes.hugging_face import ADAPTING, AUTOGRAD, KERNELS, RECOMPUTE, RULES
from trainplan.costmodel.runtimes.megatron.settings import context_exchange_needs_ranks
from trainplan.costmodel.runtimes.traits import Communication, Recipe, Setting
from trainplan.costmodel.runtimes.traits.layers import OF_TRANSFORMERS
from trainplan.costmodel.runtimes.traits.tiling import Tiling


@rule(
    "zero_stage cp dp dp_replicate",
    "accelerate shards with FSDP2, which is zero_stage 2 (weights stay gathered) or 3: use one, or "
    "0 where only adapters are trained",
    "huggingface/accelerate utils/fsdp_utils.py, fsdp2_prepare_model: reshard_after_forward",
)
def fully_shard_alone(job: Job, table: LayoutTable) -> BoolColumn:
    """Replicas alone, without anything sharded, are another wrapper (DDP), priced for adapters."""
    adapts = job.model.trained is not None and job.model.trained.adapts
    plain = (table.zero_stage == 0) & (table.cp == 1) & (table.dp_replicate == 1)
    return np.asarray((table.zero_stage < 2) & ~(plain & adapts))


@rule(
    "tp cp dp dp_replicate",
    "parallelism_config needs dp_shard > 1 with dp_replicate > 1, and dp_shard * cp > 1 with "
    "tp > 1: lower dp_replicate or tp",
    "huggingface/accelerate parallelism_config.py, __post_init__ and fsdp_dim_names",
)
def mesh_has_shards(job: Job, table: LayoutTable) -> BoolColumn:
    """The mesh of fully_shard must have the dimension that it shards over."""
    shard = table.dp // table.dp_replicate
    alone = (shard * table.cp == 1) & (table.tp > 1)
    return np.asarray(alone | ((shard == 1) & (table.dp_replicate > 1)))


@rule(
    "tiled_loss",
    "kernels of Liger tile the loss, always, and nothing else does: use tiled_loss=true with the "
    "option liger=0.6, and leave both out otherwise",
    "linkedin/Liger-Kernel src/liger_kernel/transformers/monkey_patch.py, "
    "fused_linear_cross_entropy; huggingface/transformers training_args.py, use_liger_kernel",
)
def liger_tiles_the_loss(job: Job, table: LayoutTable) -> BoolColumn:
    """Output projection and loss are one operation."""
    return np.asarray((table.tiled_loss == 1) != (job.options.liger is not None))


ACCELERATE = replace(
    FSDP2,
    name="accelerate",
    version="1.15.0.dev0",
    kernels=KERNELS,
    layers=OF_TRANSFORMERS,
    gradients=replace(FSDP2.gradients, message_bytes=2),  # dataclasses.py, set_mixed_precision
    # dataclasses.py, TorchContextParallelConfig gathers by default
    # transformers distributed/tensor_parallel.py, colwise_gather_output of lm_head
    communication=Communication(
        context_exchange="all_gather", gathers_query_heads=True, gathers_logits=True
    ),
    pipeline=ALONE,
    # transformers training_args.py, OptimizerNames; the one in 8 bits is torchao's, which FSDP2
    # shards as any other
    optimizers=(("adamw", "adamw_torch_fused"), ("adamw8bit", "adamw_torch_8bit")),
    # mixed_precision "no" and a model loaded in bf16; else utils/fsdp_utils.py,
    # fsdp2_prepare_model, casts trained weights to fp32
    state_precisions=("o0", "bf16"),
    recompute=RECOMPUTE,
    autograd=AUTOGRAD,
    settings=(
        Setting(
            "cp_comm_type",
            "p2p",
            "parallelism_config_cp_comm_strategy",
            rank=None,
            idle=context_exchange_needs_ranks,
        ),
    ),
    sharding=replace(FSDP2.sharding, version=2),  # fsdp_version
    rules=(
        *RULES,
        fully_shard_alone,
        mesh_has_shards,
        quantised_weights_are_replicated,
        flat_parameters_have_no_mesh,
        liger_tiles_the_loss,
    ),
    has_liger=True,  # transformers training_args.py, use_liger_kernel
    tiling=Tiling(loss=True, fused_loss=True),
    adapting=replace(ADAPTING, plain_replicas=True, widens=True),
    # transformers training_args.py: adamw_torch, below torch 2.8 the default
    recipe=Recipe(
        fused_optimizer=False,
        # peft tuners/lora/config.py (r) and utils/constants.py (llama), autocast_adapter_dtype
        lora=Trained(method="lora", rank=8, modules=("q", "v")),
        adapter_dtype="fp32",
    ),
)

"""deepspeed: ZeRO on Hugging Face models by the engine's JSON, 16-bit gradients, reduced beside.

Files are those of deepspeedai/DeepSpeed at edaa7221, below `deepspeed`. Buckets and calls are those
of Megatron-DeepSpeed's traits, which the same engine shards.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, LayoutTable, rule
from trainplan.costmodel.runtimes.adapters import quantised_weights_are_whole
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.fsdp import ALONE
from trainplan.costmodel.runtimes.hugging_face import ADAPTING, AUTOGRAD, KERNELS, RECOMPUTE, RULES
from trainplan.costmodel.runtimes.megatron_deepspeed import (
    FETCHES,
    REDUCE_BUCKET_ELEMENTS,
    sequence_ranks_alone,
    sequence_ranks_divide_heads,
)
from trainplan.costmodel.runtimes.traits import (
    Communication,
    Gradients,
    Host,
    Offloading,
    Sharding,
    Tiling,
)
from trainplan.costmodel.runtimes.traits.footprint import Footprint
from trainplan.costmodel.spec import Job


@rule(
    "engine_offloads_shards",
    "zero_stage offload_optimizer",
    "offload_optimizer needs zero_stage 1 or more, and a ratio below 1 zero_stage 3: change one",
    "deepspeedai/DeepSpeed runtime/zero/config.py, offload_ratio_check",
    values=(1.0,),  # all of it, below stage 3
)
def engine_offloads_shards(job: Job, table: LayoutTable) -> BoolColumn:
    """Below stage 3 the whole optimizer waits on the host, or none of it."""
    share = table.offload_optimizer
    partial = (share > 0) & (share < 1) & (table.zero_stage < 3)
    return np.asarray(partial | ((share > 0) & (table.zero_stage == 0)))


DEEPSPEED = RuntimeTraits(
    name="deepspeed",
    version="0.19.6",
    kernels=KERNELS,
    host=Host(layer="legacy"),
    gradients=Gradients(accumulated_bytes=2, message_bytes=2, added_apart=True),
    sharding=Sharding(
        zero_stages=(1, 2, 3),  # 0 would be DDP, which reduces after the backward pass
        overlaps_gradients=True,  # overlap_comm, which the exporter always states
        # runtime/zero/stage_1_and_2.py: use_multi_rank_bucket_allreduce
        reduces_whole_gradients=True,
        # q, k, v, o, gate, up and down; runtime/zero/config.py has the defaults of the rest
        fetches=replace(FETCHES, weights=7),
    ),
    communication=Communication(context_exchange="a2a"),  # runtime/sequence_parallel/ulysses_sp.py
    pipeline=ALONE,
    recompute=RECOMPUTE,
    # runtime/engine.py, _configure_basic_optimizer; names it lacks are those of torch.optim
    optimizers=(("adamw", "AdamW"), ("lion", "Lion"), ("sgd", "SGD"), ("muon", "Muon")),
    offloading=Offloading(optimizer_step=0.001),  # runtime/zero/offload_config.py, ratio
    # runtime/sequence_parallel/ulysses_sp.py, TiledMLP and TiledFusedLogitsLoss
    tiling=Tiling(mlp=True, loss=True),
    autograd=AUTOGRAD,
    footprint=Footprint(reduce_bucket_elements=REDUCE_BUCKET_ELEMENTS),
    rules=(
        *RULES,
        engine_offloads_shards,
        sequence_ranks_alone,
        sequence_ranks_divide_heads,
        quantised_weights_are_whole,
    ),
    adapting=ADAPTING,
)

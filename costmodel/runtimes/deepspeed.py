"""deepspeed: ZeRO on Hugging Face models by the engine's JSON, 16-bit gradients, reduced beside.

Files are those of deepspeedai/DeepSpeed at edaa7221, below `deepspeed`. Buckets and calls are those
of Megatron-DeepSpeed's traits, which the same engine shards.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, LayoutTable, rule
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.fsdp import ALONE
from trainplan.costmodel.runtimes.hugging_face import AUTOGRAD, KERNELS, RECOMPUTE
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
)
from trainplan.costmodel.runtimes.traits.footprint import Footprint
from trainplan.costmodel.spec import Job


@rule(
    "engine_offloads_shards",
    "zero_stage offload_optimizer",
    "offload_optimizer needs zero_stage 1 or more, and a ratio below 1 zero_stage 3: change one",
    "deepspeedai/DeepSpeed runtime/zero/config.py, offload_ratio_check",
)
def engine_offloads_shards(job: Job, table: LayoutTable) -> BoolColumn:
    """Below stage 3 the whole optimizer waits on the host, or none of it."""
    share = table.offload_optimizer
    partial = (share > 0) & (share < 1) & (table.zero_stage < 3)
    return np.asarray(partial | ((share > 0) & (table.zero_stage == 0)))


@rule(
    "auto_tp_cuts_whole_heads",
    "tp sequence_parallel",
    "AutoTP cuts whole heads of keys and values and no sequence: use a tp that divides "
    "num_key_value_heads, and sequence_parallel=false",
    "deepspeedai/DeepSpeed runtime/engine.py, _apply_autotp_partitioning",
)
def auto_tp_cuts_whole_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """More ranks than heads leave some of them without attention, fewer an uneven split."""
    return np.asarray((job.model.num_key_value_heads % table.tp != 0) | table.sequence_parallel)


@rule(
    "json_has_no_expert_ranks",
    "ep etp",
    "ZeRO shards experts as every other weight: use ep=1 and etp=1",
    "deepspeedai/DeepSpeed runtime/engine.py: expert groups come from layers of the script",
)
def json_has_no_expert_ranks(job: Job, table: LayoutTable) -> BoolColumn:
    """Expert parallelism is not priced under this engine."""
    return np.asarray((table.ep > 1) | (table.etp > 1))


DEEPSPEED = RuntimeTraits(
    name="deepspeed",
    version="0.19.6",
    kernels=KERNELS,
    host=Host(layer="legacy"),
    gradients=Gradients(accumulated_bytes=2, message_bytes=2, added_apart=True),
    sharding=Sharding(
        zero_stages=(1, 2, 3),  # 0 would be DDP, which reduces after the backward pass
        overlaps_gradients=True,  # overlap_comm, which the exporter always states
        # q, k, v, o, gate, up and down; runtime/zero/config.py has the defaults of the rest
        fetches=replace(FETCHES, weights=7),
    ),
    communication=Communication(context_exchange="a2a"),  # runtime/sequence_parallel/ulysses_sp.py
    pipeline=ALONE,
    recompute=RECOMPUTE,
    offloading=Offloading(optimizer_step=0.001),  # runtime/zero/offload_config.py, ratio
    autograd=AUTOGRAD,
    footprint=Footprint(reduce_bucket_elements=REDUCE_BUCKET_ELEMENTS),
    rules=(
        engine_offloads_shards,
        auto_tp_cuts_whole_heads,
        json_has_no_expert_ranks,
        sequence_ranks_alone,
        sequence_ranks_divide_heads,
    ),
)

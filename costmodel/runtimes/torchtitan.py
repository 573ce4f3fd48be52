"""torchtitan: FSDP2 with fp32 reduction, DTensor tensor parallelism, compiled layers.

Source: pytorch/torchtitan `torchtitan/parallelisms/parallelize_llama.py` (reduce_dtype float32,
each layer a unit, resharded after forward unless pipelined) and `models/llama/model.py` (SDPA,
that is FlashAttention-2; logits in fp32).
"""

from __future__ import annotations

from trainplan.costmodel.base.units import BYTES_BF16
from trainplan.costmodel.runtimes.base import EAGER_HEAD_BYTES, RuntimeTraits
from trainplan.costmodel.runtimes.footprint import Footprint
from trainplan.costmodel.spec.layout import Schedule
from trainplan.costmodel.spec.model import ModelSpec

SCHEDULES: tuple[Schedule, ...] = (
    "1f1b",
    "interleaved",
    "gpipe",
    "breadth-first",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
)
"""Schedules it executes: the classes of torch.distributed.pipelining by name
(`pipeline_parallel_schedule`), and from a table of their ops (`pipeline_parallel_schedule_csv`)
ZB-H1 of one virtual stage a rank, ZB-H2, V-Half and V-Min."""

HEAD_BYTES = EAGER_HEAD_BYTES + BYTES_BF16
"""Bytes reserved for each logit: those of a loss without a compiler, and the logit itself.

The logits are freed before the backward pass, whose first two tensors are of fp32: one goes where
the fp32 copy was, the other does not fit where the logits were, so that block stays empty.
Source: derived; pytorch/torchtitan `train.py`, del pred; c10 `CUDACachingAllocator.cpp`, best fit
(tests/oracles/test_reserved_logits.py).
"""


def recompute_subsets(model: ModelSpec) -> tuple[tuple[str, ...], ...]:
    """Its policy over operations, which is priced for plain attention.

    Source: `parallelize_llama.py`, _apply_ac_to_transformer_block, selective_ac_option = "op".
    """
    return () if model.mla else (("torchtitan_selective_op",),)


TORCHTITAN = RuntimeTraits(
    name="torchtitan",
    version="2024-12",
    attention="flash2",
    dropout=False,
    kernels="fused",
    host="fsdp",
    selects="torchtitan_selective_op",
    recompute_subsets=recompute_subsets,
    recomputes_layers="every_kth",  # the same function: counts the layers of all parts of a rank
    stops_recomputing_early=True,  # ptd_checkpoint_wrapper; its compiler drops that product too
    overlaps_gradients=True,
    overlaps_parameters=True,
    ends_at_root=True,  # parallelize_llama.py, apply_fsdp
    gathers_every_pass=True,  # PyTorch `_fsdp_param_group.py`, reshard_after_backward
    whole_under_pipeline=True,
    reorders_sequences=True,  # apply_tp, Shard(1)
    context_exchange="all_gather",  # context_parallel_rotate_method
    gathers_query_heads=True,
    splits_freely=True,  # pipeline_parallel_split_points
    gradient_bytes=4,
    gradient_message_bytes=4,
    head_bytes_per_logit=HEAD_BYTES,
    schedules=SCHEDULES,
    footprint=Footprint(
        low_precision="cast",
        sharded_weights_are_master=True,
        keeps_gathered_inputs=True,
        repeats_key_values=True,  # models/llama/model.py, repeat_kv
    ),
)

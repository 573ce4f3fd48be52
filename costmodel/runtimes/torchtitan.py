"""torchtitan: FSDP2 with fp32 reduction, DTensor tensor parallelism, compiled layers.

Source: pytorch/torchtitan `torchtitan/parallelisms/parallelize_llama.py` (reduce_dtype float32,
each layer a unit, resharded after forward unless pipelined) and `models/llama/model.py` (SDPA,
that is FlashAttention-2; logits in fp32); `components/quantization/float8.py`: fp8 by row unless
another recipe is named; until 2025 one scale for a tensor was the default.
"""

from dataclasses import replace

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_BF16
from trainplan.costmodel.copy_streams import OffloadPolicy, Place, fsdp2_offload_policy
from trainplan.costmodel.layout import Schedule
from trainplan.costmodel.runtimes.fsdp import FSDP2
from trainplan.costmodel.runtimes.torchtitan_models import unsupported_feature
from trainplan.costmodel.runtimes.torchtitan_rules import LOSS_CHUNKS, RULES
from trainplan.costmodel.runtimes.torchtitan_settings import SETTING_RULES, SETTINGS
from trainplan.costmodel.runtimes.traits import (
    Communication,
    Offloading,
    Pipeline,
    Recipe,
    Recompute,
)
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES
from trainplan.costmodel.runtimes.traits.tiling import Tiling

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

LOGIT_BYTES = HEAD_BYTES["eager"] + BYTES_BF16
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


def offload_policy(stage: int, place: Place) -> OffloadPolicy:
    """Source: `torchtitan/distributed/fsdp.py`, CPUOffloadPolicy."""
    return fsdp2_offload_policy()


TORCHTITAN = replace(
    FSDP2,
    name="torchtitan",
    version="2024-12",
    kernels=replace(
        FSDP2.kernels,
        head_bytes_per_logit=HEAD_BYTES["fused"],  # CompileConfig.components: model and loss
        eager_loss_bytes=LOGIT_BYTES,
        fp8_recipe="rowwise",
    ),
    tiling=Tiling(loss=True, loss_chunks=LOSS_CHUNKS),
    fp8_recipes=("tensorwise", "rowwise", "rowwise_with_gw_hp"),
    # parallelize_llama.py, apply_fsdp
    sharding=replace(FSDP2.sharding, ends_at_root=True),
    communication=Communication(
        overlap_method="async_tp",  # enable_async_tensor_parallel
        reorders_sequences=True,  # apply_tp, Shard(1)
        context_exchange="all_gather",  # context_parallel_rotate_method
        gathers_query_heads=True,
    ),
    pipeline=Pipeline(
        schedules=SCHEDULES,
        splits_freely=True,  # pipeline_parallel_split_points
    ),
    recompute=Recompute(
        policy="torchtitan_selective_op",
        subsets=recompute_subsets,
        layers="every_kth",  # the same function: counts the layers of all parts of a rank
        stops_early=True,  # ptd_checkpoint_wrapper; its compiler drops that product too
    ),
    state_precisions=("o0", "bf16"),  # training.dtype
    offloading=Offloading(  # training.enable_cpu_offload
        optimizer_step=1.0,
        gradients=True,
        parameters=(None, "cpu"),
        offload_policy=offload_policy,
        pins="tensors",  # CPUOffloadPolicy, pin_memory
    ),
    footprint=replace(
        FSDP2.footprint,
        keeps_gathered_inputs=True,
        repeats_key_values=True,  # models/llama/model.py, repeat_kv
    ),
    settings=SETTINGS,
    rules=(*RULES, *SETTING_RULES),
    refuses=unsupported_feature,
    # parallelize_llama.py, apply_tp; components/loss.py: @bbb1b616 compiles the loss of layers that
    # are, @786e26f8 brought the chunks
    recipe=Recipe(sequence_parallel="always", compiles_loss_from=202504, tiles_loss_from=202604),
)

"""The zero-bubble fork of Megatron-LM: unfused attention, weight gradients split off.

Source: sail-sg/zero-bubble-pipeline-parallelism; Qi et al., arXiv:2401.10241, table 1 (activation
bytes of unfused attention) and section 4 (the optimizer step needs no synchronisation).
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES, Schedule
from trainplan.costmodel.layouts import LayoutTable, Rule, rule
from trainplan.costmodel.runtimes.attention import attention_of
from trainplan.costmodel.runtimes.megatron.core import interleaved_needs_whole_groups
from trainplan.costmodel.runtimes.megatron.features import unsupported_feature as of_megatron
from trainplan.costmodel.runtimes.megatron.options import sgd_is_whole
from trainplan.costmodel.runtimes.megatron_deepspeed import MEGATRON_DEEPSPEED
from trainplan.costmodel.runtimes.traits import Gradients, Recipe, Setting, Sharding, Stated
from trainplan.costmodel.runtimes.traits.footprint import FUSED_KERNELS, PLAIN

SPLIT: tuple[Schedule, ...] = ("zb-1p", "zb-2p", "zb-v", "v-half", "v-min")
"""Schedules with split backward passes."""


@rule(
    "cp",
    "the fork's own attention refuses cp > 1: use cp=1, or `--option attention=flash`",
    "sail-sg/zero-bubble-pipeline-parallelism core/transformer/dot_product_attention.py:46",
)
def cp_needs_transformer_engine(job: Job, table: LayoutTable) -> BoolColumn:
    """Unfused attention knows whole sequences only."""
    return np.asarray((table.cp > 1) & (attention_of(job, "unfused") == "unfused"))


@rule(
    "schedule",
    "overlap_grad_reduce=true overlaps no split backward pass: use 1f1b or interleaved, or "
    "leave the option out",
    "sail-sg/zero-bubble-pipeline-parallelism core/zbpp_utils.py, validate_arguments and "
    "WeightGradStore.is_supported",
)
def split_passes_reduce_last(job: Job, table: LayoutTable) -> BoolColumn:
    """A gradient is whole once its delayed products have run."""
    split = np.isin(table.schedule, [SCHEDULE_NAMES.index(name) for name in SPLIT])
    return np.asarray(split & (job.options.overlap_grad_reduce is True))


def unsupported_feature(model: ModelSpec) -> str | None:
    """The first feature its legacy models lack, as a noun phrase; null: they have all."""
    lacking = {
        "experts: it knows Switch layers only": model.moe is not None,
        "latent attention": model.mla is not None,
        "norms on queries and keys": model.qk_norm != "none",
        "tied embeddings": model.tie_word_embeddings,
        "sliding windows": model.num_sliding_window_layers > 0,
    }
    lacks = next((feature for feature, has in lacking.items() if has), None)
    return lacks or of_megatron(model)


def _of_whole_passes(job: Job) -> tuple[Rule, ...]:
    return (split_passes_reduce_last,)


MEGATRON_ZERO_BUBBLE = replace(
    MEGATRON_DEEPSPEED,
    name="megatron-zero-bubble",
    version="2023-11",
    gradients=Gradients(
        accumulated_bytes=4,
        message_bytes=4,
        products_accumulate=True,  # zbpp_utils.py requires --gradient-accumulation-fusion
    ),
    # the fork predates Megatron-FSDP; core/distributed/grad_buffer.py:101 scatters
    sharding=Sharding(zero_stages=(0, 1)),
    pipeline=replace(
        MEGATRON_DEEPSPEED.pipeline,
        # --enable-zero-bubble, --zero-bubble-v-schedule, --zero-bubble-v-schedule-mem-setup
        schedules=("1f1b", "interleaved", *SPLIT),
        # p2p_communication.py, wait_on_reqs; the runtime of the split ones drops handles of sends
        waits_for_messages=("1f1b", "interleaved"),
        unsynchronised=SPLIT,  # --enable-optimizer-post-validation
        whole_groups=True,
    ),
    autograd=FUSED_KERNELS,
    footprint=PLAIN,
    # core/optimizer/distrib_optimizer.py:425, only Adam is sharded
    rules=(
        interleaved_needs_whole_groups,
        cp_needs_transformer_engine,
        sgd_is_whole,
        split_passes_reduce_last,
    ),
    refuses=unsupported_feature,
    settings=(
        Setting(
            "overlap_grad_reduce",
            value=True,
            source="--overlap-grad-reduce",
            rules=_of_whole_passes,
        ),
    ),
    # training/arguments.py:309
    stated=(
        Stated(
            "overlap_param_gather", value=True, why="needs MCore models, which no export starts"
        ),
    ),
    recipe=Recipe(),
)

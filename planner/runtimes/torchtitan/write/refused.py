"""Layouts and settings that torchtitan does not run, each with what to change."""

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes import RUNTIMES, executed
from trainplan.planner.runtimes.exporter import refuse_broken
from trainplan.planner.runtimes.torchtitan.write.islands import (
    joins_one_copy,
    joins_one_stage,
    joins_weights_on_gpus,
    joins_whole_models,
    unjoined,
)

CAPACITY = (
    "moe_capacity_factor",
    "moe_pad_to_capacity",
    "moe_token_drop_policy",
    "moe_router_padding",
)
"""Its experts take all tokens that come. Source: torchtitan/models/common/moe.py."""
PRECISIONS = ("bf16", "fp32", "fp8", "mxfp8", "nvfp4")


@rule(
    "pp dp cp zero_stage",
    "torchtitan: under a pipeline weights stay gathered and gradients whole until the last micro "
    "batch, which is zero_stage 1: set it",
    "pytorch/torchtitan distributed/fsdp.py, get_fsdp_reshard_after_forward_policy",
)
def keeps_weights_under_a_pipeline(job: Job, table: LayoutTable) -> BoolColumn:
    """More than ZeRO-1 under a pipeline."""
    return np.asarray((table.pp > 1) & (table.zero_stage > 1) & (table.dp * table.cp > 1))


@rule(
    "tp cp sequence_parallel micro_batch_size",
    "torchtitan: tokens of a micro batch are a multiple of tp * 2 cp, of sequence parallelism and "
    "context parallelism: use another degree or seq_length",
    "pytorch/torchtitan trainer.py",
)
def tokens_divide(job: Job, table: LayoutTable) -> BoolColumn:
    """Tokens that do not divide by their shards."""
    pieces = np.where(table.sequence_parallel, table.tp, 1)
    pieces = pieces * np.where(table.cp > 1, 2 * table.cp, 1)
    return np.asarray(table.micro_batch_size * job.training.seq_length % pieces != 0)


REFUSES = (
    keeps_weights_under_a_pipeline,
    tokens_divide,
    joins_one_copy,
    joins_one_stage,
    joins_whole_models,
    joins_weights_on_gpus,
)


def refuse(job: Job, layout: Layout) -> None:
    """Check that torchtitan runs a layout.

    Raises:
        UnsupportedError: It does not run; the message says what to change.
    """
    traits = RUNTIMES["torchtitan"]
    refuse_broken((*traits.rules, *executed(traits)), job, layout)
    for reason in (*_layout(job, layout), *_settings(job, layout), *unjoined(job)):
        raise UnsupportedError(f"torchtitan: {reason}")


def _layout(job: Job, layout: Layout) -> Iterator[str]:
    """Source: torchtitan/trainer.py, models/common/decoder.py and distributed/fsdp.py."""
    model, training = job.model, job.training
    if model.moe is None and max(layout.ep, layout.etp) > 1:
        yield f"ep and etp cut experts, and {model.name!r} has none; set both to 1"
    if layout.pp == 1 and layout.vpp > 1:
        yield "there are no virtual stages without a pipeline; set vpp to 1"
    if training.seq_length > model.max_position_embeddings:
        yield (
            f"seq_length = {training.seq_length} is longer than the "
            f"{model.max_position_embeddings} positions of {model.name}"
        )


def _settings(job: Job, layout: Layout) -> Iterator[str]:
    options, precision = job.options, job.training.precision
    if precision not in PRECISIONS:
        yield f"precision {precision} has no key; plan for {' or '.join(PRECISIONS)}"
    refused = {
        "attention": options.attention == "unfused",
        "dropout": options.dropout is True,
        "cross_entropy": options.cross_entropy == "fused",
        "cuda_graph": options.cuda_graph == "partial",
        "overlap_grad_reduce": options.overlap_grad_reduce is False,
        "overlap_param_gather": options.overlap_param_gather is False,
        "overlap_moe_a2a": options.overlap_moe_a2a is True,
        "gradient_dtype": options.gradient_dtype == "bf16",
        "fp8_param_gather": options.fp8_param_gather is not None,
        "fused_optimizer": options.fused_optimizer is False,
        "moment_dtype": options.moment_dtype not in (None, "fp32"),
        "offload_activation_layers": bool(options.offload_activation_layers),
        **{name: name in options.settings() for name in CAPACITY},
        "cp_comm_type": options.cp_comm_type not in (None, "all_gather"),
    }
    for name, stated in refused.items():
        if stated:
            yield f"{name}={getattr(options, name)} has no key; leave the option out"
    if options.fp8_recipe == "tensorwise":
        yield (
            "fp8_recipe=tensorwise went with 2025's TOML; leave the option out for rowwise, or use "
            "rowwise_with_gw_hp"
        )

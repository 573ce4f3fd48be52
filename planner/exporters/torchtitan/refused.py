"""Layouts and settings that torchtitan does not run, each with what to change."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.spec import Job, Layout
from trainplan.planner.exporters.torchtitan.schedule import by_table, num_microbatches

FILLED = ("1f1b", "gpipe", "dualpipe-v")
"""Schedules that torch builds for as many micro batches as stages at least.

Source: torch `schedules.py`, PipelineScheduleSingle and ScheduleDualPipeV.
"""
ROUNDS = ("interleaved", "zb-h1")
"""Schedules with whole rounds. Source: that file, ScheduleInterleaved1F1B."""
PRECISIONS = ("bf16", "fp32", "fp8", "mxfp8", "nvfp4")


def refuse(job: Job, layout: Layout) -> None:
    """Check that torchtitan runs a layout.

    Raises:
        SpecError: The layout does not fill the cluster.
        UnsupportedError: It does not run; the message says what to change.
    """
    if layout.world_size != job.cluster.num_gpus:
        raise SpecError(
            f"the layout needs tp * cp * pp * dp = {layout.world_size} GPUs but cluster "
            f"{job.cluster.name!r} has {job.cluster.num_gpus}; change dp or the cluster"
        )
    for check in (_degrees, _experts, _sharding, _pipeline, _settings):
        for reason in check(job, layout):
            raise UnsupportedError(f"torchtitan: {reason}")


def _degrees(job: Job, layout: Layout) -> Iterator[str]:
    """Source: models/common/decoder.py, update_from_config, and trainer.py."""
    model, training = job.model, job.training
    heads = model.num_attention_heads if model.mla else model.num_key_value_heads
    if heads % layout.tp:
        yield f"tp = {layout.tp} must divide the {heads} key-value heads; lower tp"
    if model.attention_sinks and layout.cp > 1:
        yield f"gpt_oss does not run with cp = {layout.cp}; set cp to 1"
    pieces = (layout.tp if layout.sequence_parallel else 1) * (
        2 * layout.cp if layout.cp > 1 else 1
    )
    tokens = layout.micro_batch_size * training.seq_length
    if tokens % pieces:
        yield f"the {tokens} tokens of a micro batch are no multiple of {pieces}, tp * 2 cp"
    if training.seq_length > model.max_position_embeddings:
        yield (
            f"seq_length = {training.seq_length} is longer than the "
            f"{model.max_position_embeddings} positions of {model.name}"
        )


def _experts(job: Job, layout: Layout) -> Iterator[str]:
    """Source: distributed/parallel_dims.py and models/common/moe_sharding.py."""
    if job.model.moe is None:
        if layout.ep > 1 or layout.etp > 1:
            yield f"ep and etp cut experts, and {job.model.name!r} has none; set both to 1"
        return
    cut = layout.tp if layout.ep == 1 else 1
    if layout.etp != cut:
        yield (
            f"experts are cut over tp where ep = 1 and not at all elsewhere; etp = {layout.etp} "
            f"with tp = {layout.tp} and ep = {layout.ep}: set etp to {cut}"
        )
    ranks = (1 if layout.zero_stage == 0 else layout.dp_shard) * layout.cp * layout.tp
    if ranks % layout.ep:
        yield f"ep = {layout.ep} must divide dp_shard * cp * tp = {ranks}; lower ep"


def _sharding(job: Job, layout: Layout) -> Iterator[str]:
    """Source: distributed/fsdp.py, get_fsdp_reshard_after_forward_policy."""
    zero, replicas = layout.zero_stage, layout.dp * layout.cp
    if replicas == 1:
        return
    if zero == 0 and layout.cp > 1:
        yield "context ranks shard the weights in any case; use zero_stage 1 or more with cp > 1"
    if zero == 0 and layout.dp_replicate > 1:
        yield "zero_stage = 0 shards nothing; set dp_replicate to 1"
    if zero > 0 and layout.dp_shard * layout.cp == 1:
        yield f"dp_replicate = {layout.dp_replicate} leaves nothing to shard; use zero_stage 0"
    if zero == 1 and layout.pp == 1:
        yield "gradients are sharded after every micro batch; without a pipeline use zero_stage 2"
    if zero > 1 and layout.pp > 1:
        yield (
            f"under a pipeline weights stay gathered and gradients whole until the last micro "
            f"batch, which is zero_stage 1, not {zero}: set it"
        )


def _pipeline(job: Job, layout: Layout) -> Iterator[str]:
    model, schedule = job.model, layout.schedule
    if layout.pp == 1:
        if layout.vpp > 1:
            yield "there are no virtual stages without a pipeline; set vpp to 1"
        return
    if model.tie_word_embeddings:
        yield "embedding and head are one weight, which no pipeline holds twice; set pp to 1"
    if model.num_nextn_predict_layers:
        yield "multi-token prediction does not run with a pipeline; set pp to 1"
    microbatches, stages = num_microbatches(job, layout), layout.pp * layout.vpp
    if schedule in FILLED and microbatches < stages:
        yield (
            f"{schedule} needs as many micro batches as stages, and {microbatches} are fewer than "
            f"{stages}; lower pp, dp or micro_batch_size"
        )
    if (
        schedule in ROUNDS
        and not by_table(layout)
        and microbatches % max(1, microbatches // layout.pp)
    ):
        yield f"{schedule} needs whole rounds of micro batches: make them a multiple of pp"


def _settings(job: Job, layout: Layout) -> Iterator[str]:
    options, precision = job.options, job.training.precision
    if precision not in PRECISIONS:
        yield f"precision {precision} has no key; plan for {' or '.join(PRECISIONS)}"
    if job.model.num_nextn_predict_layers and layout.cp > 1:
        yield "multi-token prediction does not run with context parallelism; set cp to 1"
    refused = {
        "attention": options.attention == "unfused",
        "dropout": options.dropout is True,
        "cross_entropy": options.cross_entropy in ("fused", "unfused"),
        "cuda_graph": options.cuda_graph == "partial",
        "overlap_grad_reduce": options.overlap_grad_reduce is False,
        "overlap_param_gather": options.overlap_param_gather is False,
        "overlap_moe_a2a": options.overlap_moe_a2a is True,
        "gradient_dtype": options.gradient_dtype == "bf16",
        "moment_dtype": options.moment_dtype == "bf16",
        "offload_activation_layers": bool(options.offload_activation_layers),
        "cp_comm_type": options.cp_comm_type not in (None, "all_gather"),
    }
    for name, told in refused.items():
        if told:
            yield f"{name}={getattr(options, name)} has no key; leave the option out"
    graph = options.cuda_graph == "full_iteration"
    if graph and layout.pp > 1:
        yield "CUDA graphs do not run with a pipeline; leave cuda_graph out"
    if graph and layout.ep > 1:
        yield "CUDA graphs do not run with this dispatcher of experts; leave cuda_graph out"
    if options.overlap_tp_comm and options.compile is False:
        yield "overlap_tp_comm needs the compiler; leave compile=false out"

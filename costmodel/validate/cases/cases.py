"""From a measured run to the question the model answers: a job and its layout, or why not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import ValidationError

from trainplan.costmodel import catalog
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.base.validation_errors import first_complaint
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.runtimes.traits import Recipe
from trainplan.costmodel.spec import ClusterSpec, Job, Layout, ModelSpec, MoeSpec, TrainingSpec
from trainplan.costmodel.spec.cluster import NodeGroup
from trainplan.costmodel.spec.evidence.measured_run import MeasuredRun, RunLayout, RunModel
from trainplan.costmodel.spec.layers import MlaSpec
from trainplan.costmodel.spec.layout import RECOMPUTE_MODULES
from trainplan.costmodel.spec.moe import placed_layers
from trainplan.costmodel.validate.cases import names
from trainplan.costmodel.validate.cases.split import split_into, split_of
from trainplan.costmodel.validate.cases.unstated import (
    activation,
    as_published,
    dense_intermediate_size,
    nic_of,
    options_of,
    other_task,
    recipe_of,
)

T = TypeVar("T")
SkipReason = Literal[
    "incomplete",
    "gpu_unknown",
    "runtime_unknown",
    "schedule_unknown",
    "recompute_unknown",
    "stages_differ",
    "layout_impossible",
    "invalid_record",
    "model_error",
    "other_task",
]
"""Why a run is not priced: a dimension, degree or batch size is not stated; a name the model does
not know; stages with degrees of their own; degrees that cannot hold together; a record that does
not follow the schema; a layout our formulas fail on; training of something else than all weights on
given tokens."""

STAND_IN_GPU = "b200"
"""Where the GPU is not stated, or not known and no time was measured, only memory is predicted; of
that only scratch memory of a few MiB depends on the GPU. This one multiplies in every precision."""
DEFAULT_VOCAB = 51200
"""Padded GPT-2 vocabulary, where a run does not state its own. Source: Megatron-LM defaults."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run the model can price."""

    run: MeasuredRun
    job: Job
    layout: Layout
    timed: bool
    """The GPU is known, so the step time can be compared as well as memory."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run the model cannot price."""

    run: MeasuredRun
    reason: SkipReason
    detail: str


class _Skip(Exception):  # noqa: N818 - carries an answer, not an error
    def __init__(self, reason: SkipReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def case_of(run: MeasuredRun) -> Case | Skipped:
    """The job and layout of a run."""
    task = other_task(run)
    if task:
        return Skipped(run, "other_task", task)
    try:
        layout = _layout(run)
        model = _model(run.model, _stated(run.training.seq_length, "training.seq_length"))
        if run.training.task == "lora":
            model = model.model_copy(update={"trained": recipe_of(run).lora})
        counts = split_of(run, model, layout)
        if counts is not None:
            layout = split_into(layout, counts, model.num_hidden_layers)
        job = Job(
            model=model,
            training=_training(run),
            cluster=_cluster(run),
            runtime=_runtime(run),
            options=options_of(run, model),
        )
    except _Skip as skip:
        return Skipped(run, skip.reason, skip.detail)
    except ValidationError as error:
        return Skipped(run, "layout_impossible", first_complaint(error).text)
    except PlanError as error:
        return Skipped(run, "layout_impossible", str(error).splitlines()[0])
    return Case(run, job, layout, timed=catalog.gpu_named(run.cluster.gpu or "") is not None)


def _stated(value: T | None, name: str) -> T:
    if value is None:
        raise _Skip("incomplete", f"{name} is not stated")
    return value


def _runtime(run: MeasuredRun) -> str:
    if run.runtime not in RUNTIMES:
        raise _Skip("runtime_unknown", f"runtime {run.runtime!r}")
    return run.runtime


def _model(model: RunModel, seq_length: int) -> ModelSpec:
    heads = _stated(model.num_attention_heads, "model.num_attention_heads")
    hidden = _stated(model.hidden_size, "model.hidden_size")
    gated = model.gated_mlp is not False
    mla = MlaSpec.model_validate(model.mla.model_dump()) if model.mla else None
    moe = None
    if model.moe:
        moe = MoeSpec(
            num_experts=model.moe.num_experts,
            num_experts_per_tok=model.moe.top_k,
            moe_intermediate_size=model.moe.expert_intermediate_size,
            shared_expert_intermediate_size=model.moe.shared_expert_intermediate_size or 0,
            first_k_dense_replace=model.moe.num_dense_layers or 0,
        )
    layers = _stated(model.num_layers, "model.num_layers")
    window, mixers = names.windows_called(model.sliding_window_layers, layers)
    found = ModelSpec(
        name=model.name,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=_stated(dense_intermediate_size(model), "model.intermediate_size"),
        num_attention_heads=heads,
        num_key_value_heads=model.num_key_value_heads or heads,
        head_dim=model.head_dim or hidden // heads,
        vocab_size=model.vocab_size or DEFAULT_VOCAB,
        max_position_embeddings=seq_length,
        position_embedding="rope" if gated else "learned",
        norm="rmsnorm" if gated else "layernorm",
        activation=activation(model),
        gated_mlp=gated,
        tie_word_embeddings=bool(model.tie_word_embeddings),
        sliding_window=window,
        mla=mla,
        num_nextn_predict_layers=model.mtp_layers or 0,
        **placed_layers(mixers, moe),
    )
    return as_published(found)


def _training(run: MeasuredRun) -> TrainingSpec:
    return TrainingSpec(
        seq_length=_stated(run.training.seq_length, "training.seq_length"),
        global_batch_size=_stated(run.training.global_batch_size, "training.global_batch_size"),
        precision=names.precision_called(run.training.precision, _gpu(run)),
    )


def _gpu(run: MeasuredRun) -> str:
    stated = run.cluster.gpu
    if stated is None:
        return STAND_IN_GPU
    gpu = catalog.gpu_named(stated)
    if gpu is None and not _tells_memory_alone(run):
        known = "`plan catalog gpus` lists the known ones"
        raise _Skip("gpu_unknown", f"GPU {stated!r}: {known}")
    return gpu or STAND_IN_GPU


def _tells_memory_alone(run: MeasuredRun) -> bool:
    """No step time, and how much memory there was: then the kind of GPU does not matter."""
    timed = run.measured.step_time_s or run.measured.tokens_per_s_per_gpu
    return not timed and bool(run.device_memory_gib or run.cluster.memory_gib)


def _cluster(run: MeasuredRun) -> ClusterSpec:
    cluster = run.cluster
    gpus = _stated(cluster.num_gpus, "cluster.num_gpus")
    gpu = _gpu(run)
    per_node = min(cluster.gpus_per_node or catalog.gpu(gpu).gpus_per_node, gpus)
    if gpus % per_node:
        raise _Skip("layout_impossible", f"{gpus} GPUs on nodes of {per_node}")
    group = NodeGroup(
        gpu=gpu,
        num_nodes=gpus // per_node,
        gpus_per_node=per_node,
        nvlink_domain=cluster.nvlink_domain,
        nic=nic_of(cluster, gpu, per_node),
        memory_gib=run.device_memory_gib or cluster.memory_gib,
    )
    return ClusterSpec(name=run.id, groups=(group,))


def _layout(run: MeasuredRun) -> Layout:
    stated = run.layout
    stages = stated.per_stage or ()
    for degree in ("tp", "dp"):
        if len({getattr(stage, degree) for stage in stages}) > 1:
            raise _Skip("stages_differ", f"stages differ in {degree}")
    tp, pp = _stated(stated.tp, "layout.tp"), _stated(stated.pp, "layout.pp")
    cp, vpp = stated.cp or 1, stated.vpp or 1
    gpus = _stated(run.cluster.num_gpus, "cluster.num_gpus")
    dp = stated.dp or gpus // (tp * pp * cp)
    if tp * pp * cp * dp != gpus:
        raise _Skip(
            "layout_impossible", f"tp {tp} * pp {pp} * cp {cp} * dp {dp} is not {gpus} GPUs"
        )
    micro_batch = _stated(stated.micro_batch_size, "layout.micro_batch_size")
    if stages and dp > 1:  # plans by stage count the micro batch over the replicas of the stage
        micro_batch = max(1, micro_batch // dp)
    if stated.cp_comm_type not in (None, *names.EXCHANGES):
        raise _Skip("layout_impossible", f"cp_comm_type {stated.cp_comm_type!r} is not modelled")
    recipe = recipe_of(run)
    ep, etp = stated.ep or 1, stated.etp or (tp if recipe.cuts_experts else 1)
    if run.model.moe is None:  # stated all the same, and without effect
        ep = etp = 1
    sequence_parallel = stated.sequence_parallel
    if sequence_parallel is None:
        experts = run.model.moe is not None and recipe.sequence_parallel == "experts"
        sequence_parallel = recipe.sequence_parallel == "always" or experts
    return Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        cp=cp,
        dp=dp,
        dp_replicate=stated.dp_replicate or 1,
        ep=ep,
        etp=etp,
        zero_stage=_zero_stage(stated, recipe),
        sequence_parallel=sequence_parallel and tp > 1,
        micro_batch_size=micro_batch,
        schedule=_schedule(stated, vpp),
        **_recompute(run),
    )


def _zero_stage(stated: RunLayout, recipe: Recipe) -> int:
    if stated.zero_stage is not None:
        return stated.zero_stage
    if stated.fsdp:
        return 3
    sharded = stated.distributed_optimizer
    return int(recipe.shards_optimizer if sharded is None else sharded)


def _schedule(stated: RunLayout, vpp: int) -> str:
    schedule = names.schedule_called(stated.schedule, vpp)
    if schedule is None:
        raise _Skip("schedule_unknown", f"schedule {stated.schedule!r}")
    return schedule


def _recompute(run: MeasuredRun) -> dict[str, object]:
    """Fields of `Layout`; where a share of the operations runs again it is the attention core.

    It is a third of a layer's operations and, unfused, most of its bytes, so it is chosen first.
    """
    stated = run.layout
    kind = stated.recompute or ("selective" if stated.recompute_modules else "none")
    if kind == "none":
        return {}
    if kind == "selective":
        modules = stated.recompute_modules or ("core_attn",)
        checkpoint_policy = RUNTIMES[_runtime(run)].recompute.policy
        if checkpoint_policy:  # knows no modules
            modules = (checkpoint_policy,)
        unknown = set(modules) - set(RECOMPUTE_MODULES)
        if unknown:
            raise _Skip("recompute_unknown", f"recompute_modules {sorted(unknown)}")
        return {"recompute": "selective", "recompute_modules": tuple(dict.fromkeys(modules))}
    block = re.search(r"method=block, num_layers=(\d+)", stated.recompute_detail or "")
    if stated.recompute == "full" and not block:
        return {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    if block:
        number = int(block.group(1))
        return {"recompute": "full", "recompute_method": "block", "recompute_num_layers": number}
    shares = stated.recompute_fraction_per_stage
    if not shares:
        raise _Skip("recompute_unknown", "the recomputed share is not stated")
    return {"recompute": "selective", "recompute_modules": ("core_attn",)} if any(shares) else {}

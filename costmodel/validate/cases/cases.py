"""From a measured run to the question the model answers: a job and its layout, or why not."""

import re
from dataclasses import dataclass

from pydantic import ValidationError

from trainplan.costmodel import catalog
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.documents import MeasuredRun, RunLayout
from trainplan.costmodel.hardware import ClusterSpec, HostSpec, NodeGroup
from trainplan.costmodel.job import Job, OptimizerSpec, TrainingSpec
from trainplan.costmodel.layout import RECOMPUTE_MODULES, Layout
from trainplan.costmodel.runtimes import RUNTIMES, Recipe
from trainplan.costmodel.spec import first_complaint
from trainplan.costmodel.validate.cases import names
from trainplan.costmodel.validate.cases.model import model_of
from trainplan.costmodel.validate.cases.needed import Skip, SkipReason, needed
from trainplan.costmodel.validate.cases.split import split_into, split_of
from trainplan.costmodel.validate.cases.unstated import (
    adapters_of,
    nic_of,
    of_cloud,
    options_of,
    other_task,
    recipe_of,
    state_precision,
    tiles_loss,
)

STAND_IN_GPU, STAND_IN_FOR_BLOCKS = "h100-sxm", "b200"
"""Where the GPU is not stated, or not known and no time was measured, only memory is predicted; of
that scratch memory of a few MiB and transposes in fp8 depend on the GPU, and the first keeps them.
The second multiplies in mxfp8 and nvfp4, which the first does not."""


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


def case_of(run: MeasuredRun) -> Case | Skipped:
    """The job and layout of a run."""
    task = other_task(run)
    if task:
        return Skipped(run, "other_task", task)
    try:
        model = model_of(run)
        layout = _layout(run, model)
        if run.training.task == "lora":
            trained = {"trained": adapters_of(run)}
            model = ModelSpec.model_validate(model.model_dump() | trained)
        counts = split_of(run, model, layout)
        if counts is not None:
            layout = split_into(layout, counts, model.num_hidden_layers)
        job = Job(
            model=model,
            training=_training(run),
            cluster=_cluster(run),
            runtime=_runtime(run),
            release=run.release,
            options=options_of(run),
        )
    except Skip as skip:
        return Skipped(run, skip.reason, skip.detail)
    except ValidationError as error:
        return Skipped(run, "layout_impossible", first_complaint(error).text)
    except PlanError as error:
        return Skipped(run, "layout_impossible", str(error).splitlines()[0])
    return Case(run, job, layout, timed=catalog.gpu_named(run.cluster.gpu or "") is not None)


def _runtime(run: MeasuredRun) -> str:
    if run.runtime not in RUNTIMES:
        raise Skip("runtime_unknown", f"runtime {run.runtime!r}")
    return run.runtime


def _training(run: MeasuredRun) -> TrainingSpec:
    return TrainingSpec(
        seq_length=needed(run.training.seq_length, "training.seq_length"),
        global_batch_size=needed(run.training.global_batch_size, "training.global_batch_size"),
        precision=names.precision_called(run.training.precision, _gpu(run)),
        state_precision=state_precision(run),
        optimizer=OptimizerSpec.parse(run.training.optimizer or "adamw"),
    )


def _gpu(run: MeasuredRun) -> str:
    stated = run.cluster.gpu
    blocks = run.training.precision in ("mxfp8", "nvfp4")
    stand_in = STAND_IN_FOR_BLOCKS if blocks else STAND_IN_GPU
    if stated is None:
        return stand_in
    gpu = catalog.gpu_named(stated)
    if gpu is None and not _tells_memory_alone(run):
        known = "`plan catalog gpus` lists the known ones"
        raise Skip("gpu_unknown", f"GPU {stated!r}: {known}")
    return gpu or stand_in


def _tells_memory_alone(run: MeasuredRun) -> bool:
    """No step time, and how much memory there was: then the kind of GPU does not matter."""
    timed = run.measured.step_time_s or run.measured.tokens_per_s_per_gpu
    return not timed and bool(run.device_memory_gib or run.cluster.memory_gib)


def _cluster(run: MeasuredRun) -> ClusterSpec:
    cluster = run.cluster
    gpus = needed(cluster.num_gpus, "cluster.num_gpus")
    gpu = _gpu(run)
    per_node = min(cluster.gpus_per_node or catalog.gpu(gpu).gpus_per_node, gpus)
    if gpus % per_node:
        raise Skip("layout_impossible", f"{gpus} GPUs on nodes of {per_node}")
    named = of_cloud(cluster, gpu, per_node)
    group = NodeGroup(
        gpu=gpu,
        num_nodes=gpus // per_node,
        gpus_per_node=per_node,
        nvlink_domain=cluster.nvlink_domain,
        nic=nic_of(cluster, gpu, per_node),
        host=HostSpec(like=named.host) if named and named.host else None,
        memory_gib=run.device_memory_gib or cluster.memory_gib,
        power_limit_w=cluster.power_limit_w,
    )
    return ClusterSpec(name=run.id, groups=(group,))


def _layout(run: MeasuredRun, model: ModelSpec) -> Layout:
    stated = run.layout
    stages = stated.per_stage or ()
    for degree in ("tp", "dp"):
        if len({getattr(stage, degree) for stage in stages}) > 1:
            raise Skip("stages_differ", f"stages differ in {degree}")
    tp, pp = needed(stated.tp, "layout.tp"), needed(stated.pp, "layout.pp")
    cp, vpp = stated.cp or 1, stated.vpp or 1
    gpus = needed(run.cluster.num_gpus, "cluster.num_gpus")
    dp = stated.dp or gpus // (tp * pp * cp)
    if tp * pp * cp * dp != gpus:
        raise Skip("layout_impossible", f"tp {tp} * pp {pp} * cp {cp} * dp {dp} is not {gpus} GPUs")
    micro_batch = needed(stated.micro_batch_size, "layout.micro_batch_size")
    if stages and dp > 1:  # plans by stage count the micro batch over the replicas of the stage
        micro_batch = max(1, micro_batch // dp)
    if stated.cp_comm_type not in (None, *names.EXCHANGES):
        raise Skip("layout_impossible", f"cp_comm_type {stated.cp_comm_type!r} is not modelled")
    recipe = recipe_of(run)
    ep, etp = stated.ep or 1, stated.etp or (tp if recipe.cuts_experts else 1)
    if model.moe is None:  # stated all the same, and without effect
        ep = etp = 1
    sequence_parallel = stated.sequence_parallel
    if sequence_parallel is None:
        experts = model.moe is not None and recipe.sequence_parallel == "experts"
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
        tiled_loss=tiles_loss(run),
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
        raise Skip("schedule_unknown", f"schedule {stated.schedule!r}")
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
            raise Skip("recompute_unknown", f"recompute_modules {sorted(unknown)}")
        return {"recompute": "selective", "recompute_modules": tuple(dict.fromkeys(modules))}
    block = re.search(r"method=block, num_layers=(\d+)", stated.recompute_detail or "")
    if stated.recompute == "full" and not block:
        return {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    if block:
        number = int(block.group(1))
        return {"recompute": "full", "recompute_method": "block", "recompute_num_layers": number}
    shares = stated.recompute_fraction_per_stage
    if not shares:
        raise Skip("recompute_unknown", "the recomputed share is not stated")
    return {"recompute": "selective", "recompute_modules": ("core_attn",)} if any(shares) else {}

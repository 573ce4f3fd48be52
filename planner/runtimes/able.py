"""Which runtimes train a job: what one does not price, what its exporter refuses, and who can."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from trainplan.costmodel.base import PlanError, UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.outer import island_job
from trainplan.costmodel.runtimes import (
    RUNTIMES,
    executed,
    option_without_price,
    traits_of,
    uncommon_parts,
)
from trainplan.planner.runtimes.registry import EXPORTERS

PREFERRED: Mapping[str, str] = MappingProxyType(
    {
        "megatron-lm": "which has every axis and most of the measured runs",
        "megatron-bridge": "which has Megatron Core's axes, and adapters",
        "torchtitan": "which cuts matrices, stages and sequences as torch does",
        "accelerate": "which shards any model of transformers",
        "deepspeed": "which shards any model of transformers, and offloads",
        "arctic-training": "which runs DeepSpeed over models of transformers",
        "fsdp2": "a module of plain PyTorch for decoders like Llama's",
        "transformers": "the Trainer of transformers, with every optimizer that it names",
        "megatron-zero-bubble": "a fork of 2023 with split backward passes",
    }
)
"""Runtimes of a job that names none, the first that can, each with a reason; no plug-in is one.

Source: assumed; more axes first, and of as many the one with more runs in the accuracy table."""
PAIR = 2
"""GPUs of the plainest layout that shards."""


def unpriced(job: Job) -> str | None:
    """Why no layout of the job has a price under its runtime; null: some may have."""
    try:
        lacking = sorted(uncommon_parts(job.model) - traits_of(job).layers)
    except PlanError as error:
        return str(error).partition(": use --runtime")[0]
    if lacking:
        return f"{job.runtime} has no {' and no '.join(one.removeprefix('a ') for one in lacking)}"
    return option_without_price(job, RUNTIMES[job.runtime])


def unwritten(job: Job) -> str | None:
    """Why no layout of the job has launch files, though its runtime has an exporter; null: some.

    The plainest layouts are exported, one for each ZeRO stage, and with experts on one rank or two:
    what all of them are refused for is not the layout. A rule that all break is the reason.

    Raises:
        SpecError: As `island_job`.
    """
    exporter = EXPORTERS.get(job.runtime)
    if exporter is None:
        return None
    if feature := RUNTIMES[job.runtime].refuses(job.model):
        return f"{job.runtime} cannot express {feature}"
    tiled = RUNTIMES[job.runtime].tiling.fused_loss and job.options.liger is not None
    plain = [
        Layout(dp=PAIR, ep=ep, zero_stage=stage, tiled_loss=tiled)
        for ep in ((1, PAIR) if job.model.moe else (1,))
        for stage in (1, 0, 2, 3)
    ]
    small, table, traits = (
        on_one_node(island_job(job), PAIR, PAIR),
        LayoutTable.of(plain),
        traits_of(job),
    )
    for rule in (*executed(traits), *traits.rules):
        if rule.broken(small, table).all():
            return rule.says
    return why_none_written(exporter, small, plain)


def why_none_written(
    export: Callable[[Job, Layout], object], job: Job, layouts: Iterable[Layout]
) -> str | None:
    """The commonest reason, so that a rule on one stage is said once; null: one is written."""
    reasons = []
    for layout in layouts:
        try:
            export(job, layout)
        except PlanError as error:
            reasons.append(str(error))
        else:
            return None
    return max(reasons, key=reasons.count, default=None)


def on_one_node(job: Job, gpus: int, batch: int) -> Job:
    """The job with another batch, on so many GPUs of its first group."""
    training = job.training.model_copy(update={"global_batch_size": batch})
    group = job.cluster.groups[0].model_copy(update={"num_nodes": 1, "gpus_per_node": gpus})
    cluster = job.cluster.model_copy(update={"groups": (group,), "links": None})
    return job.model_copy(update={"cluster": cluster, "training": training})


def why_unable(job: Job) -> str | None:
    """Why no layout of the job has a price, or launch files where its runtime has any."""
    return unpriced(job) or unwritten(job)


def launch_rules(job: Job) -> tuple[Rule, ...]:
    """What layouts must respect for `plan export` to write them; nothing without an exporter."""
    exporter = EXPORTERS.get(job.runtime)
    return exporter.rules if exporter else ()


def able_runtimes(job: Job) -> tuple[str, ...]:
    """Runtimes that train the job and have launch files for it, the preferred first."""
    there = (n for n in PREFERRED if RUNTIMES[n].trains_on_cpu or not job.cluster.on_cpu)
    return tuple(name for name in there if not _unable(_under(job, name)))


def runtime_chosen(job: Job, *, files: bool) -> tuple[Job, str]:
    """The job under the first runtime that can, and why; as it is where its own can, or none.

    A runtime can if it prices the job and, for `files` or adapters, some layout has launch files.
    """
    reason = _unable(job) if files or job.model.trained else unpriced(job)
    names = able_runtimes(job) if reason else ()
    if not names:
        return job, ""
    return _under(job, names[0]), f"runtime {names[0]}, {PREFERRED[names[0]]}: {reason}"


def check_able(job: Job) -> None:
    """Has some layout of the job a price, and launch files where a runtime has any for it?

    Raises:
        UnsupportedError: It has not; the message names the runtimes that have.
    """
    no_price = unpriced(job)
    reason = no_price or unwritten(job)
    if reason and (names := able_runtimes(job)):
        raise UnsupportedError(
            f"{reason}; {_listed(names)} can: use --runtime {names[0]}, or leave it out"
        )
    if no_price:
        others = [name for name in RUNTIMES if not unpriced(_under(job, name))]
        can = f"{_listed(others)} can, without launch files" if others else "no runtime can"
        raise UnsupportedError(f"{no_price}; {can}")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _unable(job: Job) -> str | None:
    if job.runtime not in EXPORTERS:
        return f"no launch files are written for {job.runtime}"
    return unpriced(job) or unwritten(job)


def _under(job: Job, name: str) -> Job:
    return job.model_copy(update={"runtime": name})

"""Is part of the cluster alone faster than a layout on all of it? Slow links make it so."""

from collections.abc import Iterable

from trainplan.costmodel.job import Job
from trainplan.costmodel.run_costs import goodput_of
from trainplan.costmodel.step import Estimate
from trainplan.planner.goals.best_part import fastest_island
from trainplan.planner.goals.cluster_sizes import island_jobs
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.work import Budget, part_of

PART_ALONE = "part of the cluster alone"
"""In a note that answers it."""
SHARE_OF_PART = 1 / 8
"""Of a time limit, kept for the question where no part is searched by itself. Source: assumed."""


def time_before_part(jobs: Iterable[Job], limit: Budget) -> Budget:
    """A time limit without what the question may take, of jobs that are searched on all nodes."""
    return part_of(limit, 1 - SHARE_OF_PART) if any(map(island_jobs, jobs)) else limit


def part_alone(context: SearchContext, priced: Estimate) -> tuple[str, ...]:
    """A sentence where it is faster, or where that is not known; usually none.

    Of an island that outer steps join with others, a part is no answer to the same question.
    """
    if context.job.outer is not None:
        return ()
    work_s = priced.terms.gemm + priced.terms.attention
    found = fastest_island(context, priced.step_time_s, work_s)
    return () if found is None else (part_text(context.job, found.job, found.step_s),)


def part_text(job: Job, part: Job, step_s: float | None) -> str:
    """That a part of the cluster of a job is faster; null: that it is not known.

    Where failures are stated it ends a run first, so both have the share of the time that trains.
    """
    of = f"{part.cluster.num_gpus:,} of the {job.cluster.num_gpus:,} GPUs ({part.cluster.text})"
    if step_s is None:
        return f"not known whether {PART_ALONE} is faster, such as {of}: the time limit struck"
    own, alone = goodput_of(job), goodput_of(part)
    trains = f", with goodput {alone.fraction:.1%}, not {own.fraction:.1%}" if own and alone else ""
    return f"{PART_ALONE} is faster: {step_s:.4g} s on {of}{trains}".replace("%", " %")

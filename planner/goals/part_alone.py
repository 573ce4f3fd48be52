"""Is part of the cluster alone faster than a layout on all of it? Slow links make it so."""

from collections.abc import Iterable

from trainplan.costmodel.job import Job
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
    if found is None:
        return ()
    of = f"{found.num_gpus:,} of the {context.job.cluster.num_gpus:,} GPUs ({found.cluster})"
    if found.value is None:
        return (f"not known whether {PART_ALONE} is faster, such as {of}: the time limit struck",)
    return (f"{PART_ALONE} is faster: {found.value:.4g} s on {of}",)

"""A finished search with even stages, gone on with uneven ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.runtimes.executes import EVEN_SPLIT
from trainplan.costmodel.spec.job import Job
from trainplan.planner.goals.cluster_sizes import longest_step, lower_bound_of
from trainplan.planner.goals.context import Prober
from trainplan.planner.goals.reach import Reached, step_target
from trainplan.planner.goals.uneven import (
    joined,
    looks_for_uneven,
    proof_of,
    splits_below,
    wants_uneven,
)
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.search.result import FreeFound
from trainplan.planner.stages.heuristics import try_likely
from trainplan.planner.stages.problem.problem import Splittable
from trainplan.planner.stages.search import FreeSplits

OPENED_FOR_ANY = 60
"""Layouts opened, where uneven stages are only tried, until one fits. Source: assumed; seconds."""


def check_uneven(job: Job, options: SearchOptions, *, pareto: bool = False) -> None:
    """Can even stages be excluded from a job?

    Raises:
        SpecError: They are, and the runtime, the objective or another choice leaves no others.
    """
    if not wants_uneven(options):
        return
    traits = traits_of(job)
    if not traits.pipeline.splits_freely:
        raise SpecError(
            f"--exclude stages=even leaves no layout: rule {EVEN_SPLIT}, {traits.name} splits "
            "layers evenly: drop it, or choose a --runtime that splits them freely"
        )
    if any(choice.only_even for choice in options.choices):
        raise SpecError(
            "--exclude stages=even and --fix stages=even (or --exclude stages=free) leave no "
            "layout: drop one of them"
        )
    asked = "--pareto" if pareto else f"--objective {options.objective}"
    if asked != "--objective time":
        raise SpecError(
            "--exclude stages=even: uneven stages alone are searched for --objective time, not for "
            f"{asked}: drop one of them"
        )


def with_uneven_stages(prober: Prober, reached: Reached) -> Reached:
    """The same answer, or a faster one whose stages are uneven, with what is proven of them.

    Raises:
        SpecError: Even stages are excluded, and no uneven ones were found.
    """
    job, options, found = reached.job, prober.options, reached.found
    if wants_uneven(options) and len(job.cluster.groups) == 1:
        return _only_uneven(prober, reached)
    if options.objective != "time" or not looks_for_uneven(job, options):
        return reached
    if reached.target is None:
        return _where_no_even_fit(prober, reached)
    if (free := reached.free) is None:
        return reached
    bound = lower_bound_of(found, free)
    finalists = joined(found.finalists, free, options.top)
    changed = _changed(prober, reached, free, bound, finalists)
    return replace(changed, uneven=proof_of(found, free))


def _where_no_even_fit(prober: Prober, reached: Reached) -> Reached:
    """The best layout with uneven stages where even ones need too much memory; maybe none."""
    if not reached.found.complete:
        return reached
    splits = splits_below(prober, reached.job, np.inf)
    if prober.options.tries_uneven is not None:
        splits.open(OPENED_FOR_ANY, any_answer=True)
        free = splits.known()
    else:
        free = splits.run(at_last=try_likely)
    if free.table is None:
        return reached
    return _changed(prober, reached, free, free.lower_bound_s, free.table)


def _changed(
    prober: Prober, reached: Reached, free: FreeFound, bound: float, finalists: LayoutTable | None
) -> Reached:
    """The answer of the second half."""
    target = step_target(prober, reached.job, free.step_time_s, bound)
    found = replace(reached.found, finalists=finalists, lower_bound_s=bound, value=free.step_time_s)
    return replace(reached, found=found, target=target)


def _only_uneven(prober: Prober, reached: Reached) -> Reached:
    """The best layout whose stages are not even, whatever even ones give."""
    job, found = reached.job, reached.found
    below = np.nextafter(longest_step(prober, job), np.inf)
    splits = splits_below(prober, job, below, OnlyUneven)
    if found.finalists is not None:
        splits.try_first(found.finalists)
    free = splits.run(at_last=try_likely)
    late = prober.budget.spent()
    if free.table is None and found.finalists is None and not late:
        return reached
    if free.table is None:
        raise SpecError(
            "the time limit struck before a layout with uneven stages was found: raise --time-limit"
            if late
            else "no layout with uneven stages is legal, fits and is in time: drop --exclude "
            "stages=even"
        )
    proof = None if found.finalists is None else proof_of(found, free)
    changed = _changed(prober, reached, free, free.lower_bound_s, free.table)
    return replace(changed, uneven=proof)


class OnlyUneven(FreeSplits):
    """A run that takes no even split for an answer."""

    def rows(self, table: LayoutTable) -> list[Splittable]:
        """The layouts of a table, one by one; none is to be split evenly."""
        return [replace(row, even_too=False) for row in super().rows(table)]

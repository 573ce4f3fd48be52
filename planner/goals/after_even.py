"""A finished search with even stages, gone on with uneven ones."""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.runtimes import EVEN_SPLIT
from trainplan.planner.goals.cluster_sizes import longest_step, lower_bound_of
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.fastest import step_target
from trainplan.planner.goals.reach import Reached
from trainplan.planner.goals.uneven import (
    Limits,
    all_splits,
    joined,
    looks_for_uneven,
    proof_of,
    splits_below,
    wants_uneven,
)
from trainplan.planner.stages import StageProblem, UnevenSearch
from trainplan.planner.tree import UnevenResult

EXPANDED_FOR_ANY = 60
"""Layouts opened, where uneven stages are only tried, until one fits. Source: assumed; seconds."""


def check_uneven(context: SearchContext, *, pareto: bool = False) -> None:
    """Can even stages be excluded from a job?

    Raises:
        SpecError: They are, and the runtime, the objective or another choice leaves no others.
    """
    options, traits = context.options, context.traits
    if not wants_uneven(options):
        return
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
    option = "--pareto" if pareto else f"--objective {options.objective}"
    if option != "--objective time":
        raise SpecError(
            "--exclude stages=even: uneven stages alone are searched for --objective time, not for "
            f"{option}: drop one of them"
        )


def with_uneven_stages(reached: Reached) -> Reached:
    """The same answer, or a faster one whose stages are uneven, with what is proven of them.

    Raises:
        SpecError: Even stages are excluded, and no uneven ones were found.
    """
    context, found = reached.context, reached.found
    options = context.options
    if wants_uneven(options) and not is_heterogeneous(context.job.cluster):
        return _only_uneven(reached)
    if options.objective != "time" or not looks_for_uneven(context):
        return reached
    if reached.target is None:
        return _where_no_even_fit(reached)
    if (uneven_result := reached.uneven_result) is None:
        return reached
    bound = lower_bound_of(found, uneven_result)
    finalists = joined(found.finalists, uneven_result, options.top)
    changed = _changed(reached, uneven_result, bound, finalists)
    return replace(changed, uneven=proof_of(found, uneven_result))


def _where_no_even_fit(reached: Reached) -> Reached:
    """The best layout with uneven stages where even ones need too much memory; maybe none."""
    if not reached.found.complete:
        return reached
    context = reached.context
    search = splits_below(context, context.group, Limits())
    tries = context.options.tries_uneven is not None
    uneven_result = all_splits(
        search, context.budget, EXPANDED_FOR_ANY if tries else np.inf, brief=tries
    )
    if uneven_result.table is None:
        return reached
    return _changed(reached, uneven_result, uneven_result.lower_bound_s, uneven_result.table)


def _changed(
    reached: Reached, uneven_result: UnevenResult, bound: float, finalists: LayoutTable | None
) -> Reached:
    """The answer of the second half."""
    target = step_target(reached.context, uneven_result.step_time_s, bound)
    found = replace(
        reached.found, finalists=finalists, lower_bound_s=bound, value=uneven_result.step_time_s
    )
    return replace(reached, found=found, target=target)


def _only_uneven(reached: Reached) -> Reached:
    """The best layout whose stages are not even, whatever even ones give."""
    context, found = reached.context, reached.found
    cutoff_s = np.nextafter(longest_step(context), np.inf)
    search = splits_below(context, context.group, Limits(cutoff_s), OnlyUneven)
    if found.finalists is not None:
        search.try_first(found.finalists)
    uneven_result = all_splits(search, context.budget)
    late = context.budget.spent()
    if uneven_result.table is None and found.finalists is None and not late:
        return reached
    if uneven_result.table is None:
        raise SpecError(
            "the time limit struck before a layout with uneven stages was found: raise --time-limit"
            if late
            else "no layout with uneven stages is legal, fits and is in time: drop --exclude "
            "stages=even"
        )
    proof = None if found.finalists is None else proof_of(found, uneven_result)
    changed = _changed(reached, uneven_result, uneven_result.lower_bound_s, uneven_result.table)
    return replace(changed, uneven=proof)


class OnlyUneven(UnevenSearch):
    """A run that takes no even split for an answer."""

    def rows(self, table: LayoutTable) -> list[StageProblem]:
        """The layouts of a table, one by one; none is to be split evenly."""
        return [replace(row, even_too=False) for row in super().rows(table)]

"""Searches for uneven stages, as part of a question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.layouts.table import objects
from trainplan.costmodel.measured import machine_for
from trainplan.costmodel.pipeline.node_groups import is_heterogeneous
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.spec import Job
from trainplan.planner.goals.any_chunks import EXPANDED, alike_budget, any_chunks
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.plan import SearchOptions
from trainplan.planner.plan.plan import UnevenStages
from trainplan.planner.space import legality_rules
from trainplan.planner.space.offload import fractions_of_splits
from trainplan.planner.stages.heuristics import try_near, try_promising, try_siblings
from trainplan.planner.stages.search import EXPANDED_WITHOUT_LIMIT, UnevenSearch
from trainplan.planner.stages.solve.tasks import SplitContext
from trainplan.planner.tree import Pool, SearchResult
from trainplan.planner.tree.result import UnevenResult
from trainplan.planner.work import Budget
from trainplan.planner.work.budget import TaskBudget


def splits_freely(job: Job, options: SearchOptions) -> bool:
    """Does the runtime take any split of the layers, and the user too?

    Clusters of unlike groups have a search of their own.
    """
    held = any(choice.only_even for choice in options.choices)
    return traits_of(job).pipeline.splits_freely and not held and not is_heterogeneous(job.cluster)


def wants_uneven(options: SearchOptions) -> bool:
    """Is no even split an answer?"""
    return any(choice.only_uneven for choice in options.choices)


def looks_for_uneven(job: Job, options: SearchOptions) -> bool:
    """Does a search for the fastest layout go on with uneven stages?"""
    wanted = options.tries_uneven is not None or not options.only_answer
    return wanted and splits_freely(job, options)


def splits_below(
    context: SearchContext,
    job: Job,
    cutoff_s: float,
    kind: type[UnevenSearch] = UnevenSearch,
    *,
    roots: Pool | None = None,
    memory_bytes: float = np.inf,
) -> UnevenSearch:
    """A run for splits that are faster than some seconds and use no more than some bytes."""
    rules = (*context.options.rules_of_grid(job), *context.only, *legality_rules(job))
    machine = machine_for(job, context.measured)
    usable = min(context.usable_bytes(job), memory_bytes)
    split_context = SplitContext(
        job, machine, traits_of(job), usable, fractions_of_splits(traits_of(job), rules)
    )
    tries = context.options.tries_uneven is not None
    budget = TaskBudget(context.budget) if tries else context.budget
    return kind(split_context, rules, cutoff_s, budget, context.workers, roots=roots)


@dataclass(frozen=True)
class Begun:
    """A search for splits whose chunks are alike, that may go on with any chunks."""

    alike: UnevenResult
    splits: UnevenSearch | None = None
    """None where there was no time to begin."""
    even: LayoutTable | None = None
    """Answers before."""

    def with_any_chunks(self, opened: int = EXPANDED) -> UnevenResult:
        """What is known when so many layouts are split with any chunks."""
        if self.splits is None:
            return self.alike
        return any_chunks(self.splits, self.alike, self.even, opened)

    def further(self) -> Begun:
        """What is known when its budget is spent, or nothing is left to open."""
        if self.splits is None:
            return self
        self.splits.expand(None, any_answer=False)
        return replace(self, alike=self.splits.known())

    def within(self, budget: Budget, cutoff_s: float = np.inf) -> Begun:
        """The same, to go on within a budget, for what is faster than some seconds."""
        if self.splits is not None:
            self.splits.budget = budget
            self.splits.incumbent_s = min(self.splits.incumbent_s, cutoff_s)
        return self


def begin_splits(
    context: SearchContext,
    job: Job,
    found: SearchResult,
    cutoff_s: float = np.inf,
    *,
    max_expanded: int = EXPANDED_WITHOUT_LIMIT,
    any_answer: bool = False,
    one_of_many: bool = False,
) -> Begun:
    """What splits with chunks alike give below some seconds and the best even ones.

    Where no time is left, or the best even ones are not proved, that no split beats the floor. One
    of many searches stops where its work ends, others try what looks fast first and last.
    """
    incumbent_s = min(found.value, cutoff_s)
    if context.budget.spent() or found.lower_bound_s < incumbent_s:
        return Begun(UnevenResult(None, incumbent_s, min(found.step_bound_s, incumbent_s), 0))
    splits = splits_below(context, job, incumbent_s, roots=found.roots)
    if found.finalists is not None:
        splits.try_first(found.finalists)
    if not one_of_many:
        try_siblings(splits, splits.table)
    if context.options.tries_uneven is not None:
        near = _near(context.options, job)
        try_near(splits, near and near.replaced(stages=objects([None])))
        splits.expand(context.options.tries_uneven, any_answer=False)
        polished = any_chunks(splits, splits.known(), found.finalists, opened=0, near=near)
        return Begun(polished)
    at_last = None if one_of_many else partial(try_promising, answer=found.finalists)
    alike = splits.run(max_expanded, any_answer=any_answer, at_last=at_last)
    return Begun(alike, splits, found.finalists)


def faster_splits(
    context: SearchContext,
    job: Job,
    found: SearchResult,
    cutoff_s: float = np.inf,
    *,
    max_expanded: int = EXPANDED_WITHOUT_LIMIT,
    any_answer: bool = False,
    one_of_many: bool = False,
) -> UnevenResult:
    """What uneven stages give below some seconds and the best even ones: `begin_splits` and on.

    Of one of many searches no layouts are split with any chunks. Where uneven stages are only
    tried, none are either.
    """
    begun = begin_splits(
        replace(context, budget=alike_budget(context.budget)),
        job,
        found,
        cutoff_s,
        max_expanded=max_expanded,
        any_answer=any_answer,
        one_of_many=one_of_many,
    )
    return begun.within(context.budget).with_any_chunks(0 if one_of_many else EXPANDED)


def splits_within_memory(
    context: SearchContext,
    job: Job,
    answer: LayoutTable,
    cutoff_s: float,
    *,
    memory_bytes: float,
    roots: Pool,
) -> LayoutTable | None:
    """A layout with the degrees of an answer and uneven stages within limits, if one is found.

    `roots` are nodes that may fit.
    """
    if not looks_for_uneven(job, context.options):
        return None
    splits = splits_below(context, job, cutoff_s, roots=roots, memory_bytes=memory_bytes)
    splits.budget = TaskBudget(context.budget)
    try_near(splits, answer.replaced(stages=objects([None])))
    return splits.table


def _near(options: SearchOptions, job: Job) -> LayoutTable | None:
    """The answer of a similar job on the GPUs of this one."""
    near = options.near and options.near.resized(job.cluster.num_gpus)
    return LayoutTable.of([near]) if near else None


def proof_of(found: SearchResult, uneven_result: UnevenResult) -> UnevenStages:
    """What is proven of the stages of one job, by a search for even ones and one for all."""
    return UnevenStages(
        even_step_time_s=found.value,
        even_lower_bound_s=min(found.lower_bound_s, found.value),
        lower_bound_s=uneven_result.lower_bound_s,
        any_split_lower_bound_s=uneven_result.any_split_lower_bound_s,
        judged=uneven_result.num_simulated,
    )


def joined(
    finalists: LayoutTable | None, uneven_result: UnevenResult, top: int
) -> LayoutTable | None:
    """The finalists behind the faster layout, without the one it is a split of."""
    if uneven_result.table is None or finalists is None:
        return finalists if uneven_result.table is None else uneven_result.table
    degrees = ("tp", "cp", "pp", "ep", "etp")
    same = np.all(
        [getattr(finalists, name) == getattr(uneven_result.table, name) for name in degrees], axis=0
    )
    kept = finalists.take(~same)
    return LayoutTable.concat([uneven_result.table, kept.take(np.arange(min(len(kept), top - 1)))])

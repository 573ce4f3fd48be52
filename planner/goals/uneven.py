"""Searches for uneven stages, as part of a question."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import objects
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, Rule, layers_per_stage
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.even import EvenAnswer
from trainplan.planner.plan import SearchOptions, UnevenStages
from trainplan.planner.policies import allows_any_split, fractions_of_splits
from trainplan.planner.space import VARIANT_DEGREES
from trainplan.planner.stages import (
    PathPool,
    SplitContext,
    SplitMember,
    UnevenSearch,
    polished,
    try_near,
    try_siblings,
)
from trainplan.planner.tree import Group, Pool, SearchResult, UnevenResult
from trainplan.planner.work import Budget, TaskBudget, run_together

ANY_CHUNKS = 8
"""Tables of branches with any chunks that are opened at most. Source: measured; the bounds of dense
jobs need two, and those of experts hardly rise by more."""

ANY_ANSWER = 60
"""Layouts with any chunks split where none fits with equal chunks. Source: assumed."""


def splits_freely(on: Context, options: SearchOptions) -> bool:
    """Does the runtime take any split of the layers, and the user too?

    Clusters of different groups have a search of their own.
    """
    if any(choice.only_even for choice in options.choices):
        return False
    return on.traits.pipeline.splits_freely and not is_heterogeneous(on.job.cluster)


def wants_uneven(options: SearchOptions) -> bool:
    """Is no even split an answer?"""
    return any(choice.only_uneven for choice in options.choices)


def looks_for_uneven(context: SearchContext) -> bool:
    """Does a search for the fastest layout go on with uneven stages?"""
    options = context.options
    wanted = options.tries_uneven is not None or not options.only_answer
    return wanted and splits_freely(context, options)


@dataclass(frozen=True, slots=True)
class Limits:
    """What splits must respect with the rules."""

    cutoff_s: float = np.inf
    memory_bytes: float = np.inf


def splits_below(
    context: SearchContext,
    group: Group,
    limits: Limits,
    kind: type[UnevenSearch] = UnevenSearch,
    *,
    roots: Pool | None = None,
) -> UnevenSearch:
    """A search for splits of a group that are faster and smaller than some limits, not begun."""
    members = [
        SplitMember(_split_context(context, one.context, one.rules, limits), one.rules)
        for one in group.members
    ]
    of = _split_context(context, group.members[0].context, group.rules, limits)
    known = limits.cutoff_s, _of_tasks(context), context.workers
    return kind(of, group.rules, *known, roots=roots, members=members)


def _of_tasks(context: SearchContext) -> Budget:
    """Of the work on splits; where they are only tried, no piece of it ends early."""
    tries = context.options.tries_uneven is not None
    return TaskBudget(context.budget) if tries else context.budget


def _split_context(
    context: SearchContext, own: Context, rules: Sequence[Rule], limits: Limits
) -> SplitContext:
    usable = min(context.usable_of(own.machine), limits.memory_bytes)
    return SplitContext(*own.shared, usable, fractions_of_splits(own.traits, rules))


class Splits:
    """Splits of some groups of combinations, with one incumbent, one budget and one bound."""

    def __init__(
        self, searches: Sequence[UnevenSearch], incumbent_s: float, budget: Budget
    ) -> None:
        self.searches, self.incumbent_s, self.budget = list(searches), incumbent_s, budget
        self.free: list[UnevenSearch] = []
        """The same with any chunks, once they have begun."""
        self.table: LayoutTable | None = None
        self.job = searches[0].job
        self.num_simulated = self.expanded = 0
        """Of searches that opened nothing themselves."""

    def go_on(self, incumbent_s: float, budget: Budget, tasks: Budget) -> None:
        """Continue, with other budgets and maybe with a better answer than any split."""
        self.budget = budget
        if incumbent_s < self.incumbent_s:
            self.incumbent_s, self.table = incumbent_s, None
        for one in self.searches:
            one.budget = tasks
            one.lower(self.incumbent_s)

    def take(self, search: UnevenSearch) -> None:
        """Take note of a better answer of a search, and let the others know."""
        if search.table is not None and search.incumbent_s < self.incumbent_s:
            self.incumbent_s, self.table, self.job = search.incumbent_s, search.table, search.job
        for one in (*self.searches, *self.free):
            one.lower(self.incumbent_s)

    def explore(self, place: int, number: int, explore: Callable[[UnevenSearch], None]) -> None:
        """Split some layouts of one combination before their turn; no bound changes by it."""
        one = self.searches[place]
        one.lower(self.incumbent_s)
        own = one.under(number)
        explore(own)
        self.take(own)
        if own is not one:
            self.num_simulated += own.num_simulated
            self.expanded += own.expanded

    def open(self, most: float, *, any_answer: bool = False) -> None:
        """Open branches of equal chunks, until none can win or so many layouts are opened."""
        self._open(self.searches, most, any_answer=any_answer)

    def bound_any_chunks(self) -> None:
        """Bound layouts with any chunks, of those that have several on a rank.

        None is split where a split with equal chunks fits. Their best splits are looked for by
        moves of single layers alone: to split them anew takes most of a search and saves a dense
        job 0.02 %. Source: measured.
        """
        paths = PathPool(alike=False)
        self.free = [one.beyond(paths) for one in self.searches]
        while not self.budget.spent() and sum(one.expanded for one in self.free) < ANY_CHUNKS:
            first = min(self.free, key=lambda one: one.smallest_branch)
            least = min(self.incumbent_s, *(one.layouts.smallest for one in self.free))
            if first.smallest_branch >= least:
                break
            first.open_branches()
        if not np.isfinite(self.incumbent_s):  # nothing fits with chunks alike
            self._open(self.free, ANY_ANSWER, any_answer=True)

    def polish(self, place: int, number: int, answer: LayoutTable) -> None:
        """Move layers of an answer for as long as that makes it faster, to any chunks."""
        one = self.searches[place].under(number).beyond(PathPool(alike=False))
        one.lower(self.incumbent_s)
        if not one.legal(answer)[0] or not allows_any_split(one.of.traits, answer)[0]:
            return
        row, stages = one.rows(answer.replaced(stages=objects([None])))[0], answer.stages[0]
        layers = tuple(stage.layers for stage in stages or ())
        whole = one.of.job.model.num_hidden_layers
        if sum(layers) != whole:  # even, or of another model
            layers = layers_per_stage(whole, row.num_stages)
        one.update_incumbent(polished(row, one.pool, np.array([layers]), one.budget), row)
        self.take(one)
        self.num_simulated += one.num_simulated

    def improve(self, own: tuple[int, int], even: LayoutTable | None) -> None:
        """Move layers of the answer, which is the best even one where no split is better."""
        answer = even if self.table is None else self.table
        if answer is not None and not self.budget.spent():
            self.polish(*own, answer.take(np.array([0])))

    def _open(self, searches: Sequence[UnevenSearch], most: float, *, any_answer: bool) -> None:
        def stops() -> bool:
            found = any_answer and any(one.table is not None for one in searches)
            return found or sum(one.expanded for one in searches) >= most

        run_together(searches, self.budget, best=self.incumbent_s, stops=stops)
        for one in searches:
            self.take(one)

    def result(self) -> UnevenResult:
        """What is known so far.

        No split with equal chunks is faster than what is proved of its kind, by the search for them
        or by that for any chunks, which holds for these too.
        """
        known = (*self.searches, *self.free)
        alone = _least(self.searches, one_stage=True)
        alike, free = _least(self.searches, one_stage=False), _least(self.free, one_stage=False)
        bound = min(alone, max(alike, free) if self.free else alike, self.incumbent_s)
        return UnevenResult(
            self.table,
            self.incumbent_s,
            bound,
            sum(one.num_simulated for one in known) + self.num_simulated,
            sum(one.expanded for one in known) + self.expanded,
            self.job,
            any_split_lower_bound_s=min(bound, free) if self.free else None,
        )


def _least(searches: Sequence[UnevenSearch], *, one_stage: bool) -> float:
    return min((one.bound_of(one_stage=one_stage) for one in searches), default=np.inf)


def splits_of(context: SearchContext, found: EvenAnswer, cutoff_s: float = np.inf) -> Splits | None:
    """Splits below some seconds and the best even ones, of all combinations, not begun.

    None where no time is left, or the best even ones are not proved.
    """
    incumbent_s = min(found.value, cutoff_s)
    if context.budget.spent() or found.lower_bound_s < incumbent_s:
        return None
    limits = Limits(incumbent_s)
    pairs = zip(found.groups, found.nodes, strict=True)
    searches = [splits_below(context, one, limits, roots=nodes) for one, nodes in pairs]
    return Splits(searches, incumbent_s, context.budget)


def faster_splits(
    context: SearchContext,
    found: EvenAnswer,
    splits: Splits | None,
    *,
    most: float = np.inf,
    brief: bool = False,
) -> UnevenResult:
    """What uneven stages give against the best even ones.

    Without `splits` nothing beats the floor. They go on, if they have begun. A brief search tries
    no layout before its turn and no chunks of different lengths.
    """
    if splits is None:
        return UnevenResult(None, found.value, min(found.step_bound_s, found.value), 0)
    splits.go_on(found.value, context.budget, _of_tasks(context))
    if context.budget.spent():
        return splits.result()
    own, answer = found.place, found.finalists
    if answer is not None:
        splits.explore(*own, lambda one: one.try_first(answer))
    if not brief:
        splits.explore(*own, lambda one: try_siblings(one, splits.table))
    if context.options.tries_uneven is not None:
        near = _near(context.options, splits.searches[0].of.job)
        splits.explore(*own, lambda one: try_near(one, near))
        most = context.options.tries_uneven
    splits.open(most)
    if brief or context.budget.spent():
        return splits.result()
    return _at_last(context, splits, found)


def _at_last(context: SearchContext, splits: Splits, found: EvenAnswer) -> UnevenResult:
    """Moves of single layers, then any chunks."""
    tries = context.options.tries_uneven is not None
    own = found.place if splits.table is None else found.place_of(splits.job)
    splits.improve(own, found.finalists)
    near = _near(context.options, splits.job) if tries else None
    if near is not None:
        splits.polish(*own, near)
    if not tries:
        splits.bound_any_chunks()
    return splits.result()


def all_splits(
    search: UnevenSearch, budget: Budget, most: float = np.inf, *, brief: bool = False
) -> UnevenResult:
    """What a search of one combination finds of splits with equal chunks, and then of any."""
    splits = Splits([search], search.incumbent_s, budget)
    splits.table = search.table
    splits.open(most, any_answer=brief)
    if not brief:
        splits.improve((0, 0), None)
        splits.bound_any_chunks()
    return splits.result()


def splits_within_memory(
    context: SearchContext,
    answer: LayoutTable,
    cutoff_s: float,
    *,
    memory_bytes: float,
    roots: Pool,
) -> LayoutTable | None:
    """A layout with the degrees of an answer and uneven stages within limits, if one is found.

    `roots` are nodes that may fit.
    """
    if not looks_for_uneven(context):
        return None
    limits = Limits(cutoff_s, memory_bytes)
    splits = splits_below(context, context.group, limits, roots=roots)
    splits.budget = TaskBudget(context.budget)
    try_near(splits, answer)
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
    pairs = ((getattr(finalists, n), getattr(uneven_result.table, n)) for n in VARIANT_DEGREES)
    same = np.all([one == other for one, other in pairs], axis=0)
    kept = finalists.take(~same)
    return LayoutTable.concat([uneven_result.table, kept.take(np.arange(min(len(kept), top - 1)))])

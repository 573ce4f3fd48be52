"""The best layout over settings of the runtime: every combination is a question of its own.

Each has a floor, the node bound of its own search, and is searched only where that is below the
best answer so far, with that as cutoff: even stages first, then uneven ones. The proof holds over
all: no layout under any combination is faster than the smallest of their bounds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.blocks.candidates import context_of
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.measured import machine_for
from trainplan.costmodel.pipeline.node_groups import is_heterogeneous
from trainplan.costmodel.runtimes.traits import Setting
from trainplan.costmodel.spec import Job
from trainplan.costmodel.step import explicit
from trainplan.planner.goals.any_chunks import alike_budget
from trainplan.planner.goals.best_first import best_first
from trainplan.planner.goals.context import SearchContext, UntilProved
from trainplan.planner.goals.reach import Reached, num_finalists, reach, step_target
from trainplan.planner.goals.uneven import (
    Begun,
    begin_splits,
    looks_for_uneven,
    wants_uneven,
)
from trainplan.planner.plan.settings import Settings, TriedSettings
from trainplan.planner.plan.target import finite
from trainplan.planner.space.choices import broken_rules
from trainplan.planner.space.settings import (
    Combination,
    combinations,
    with_settings,
    without_one,
)
from trainplan.planner.stages.search import EXPANDED_WITHOUT_LIMIT
from trainplan.planner.tree import SearchResult
from trainplan.planner.tree.branch_and_bound import Search
from trainplan.planner.tree.result import UnevenResult
from trainplan.planner.work.budget import DeadlineBudget, part_of

ANY = sys.float_info.max
"""Seconds every layout beats: a search that finds none is not repeated to tell why."""
SHARE = 0.5
"""Of the time that is left for uneven stages, what each combination may take at first: the bound of
a plan is the smallest of all. Source: measured."""
SAME = 1e-9
"""Relative difference of two step times that is no more than rounding."""


@dataclass(slots=True)
class _Asked:
    """A combination with its search, and what is known of it."""

    combination: Combination
    context: SearchContext
    search: Search
    found: SearchResult | None = None
    even_bound: float = np.inf
    begun: Begun | None = None
    uneven: UnevenResult | None = None
    uneven_bound: float = np.inf

    @property
    def job(self) -> Job:
        return self.combination.job

    @property
    def value(self) -> float:
        """Seconds of its best layout; infinite where none beat the others."""
        even = self.found.value if self.found else np.inf
        split = self.uneven.step_time_s if self.uneven and self.uneven.table else np.inf
        return min(even, split)

    @property
    def bound(self) -> float:
        return min(self.even_bound, self.uneven_bound)


def reach_over_settings(context: SearchContext, job: Job) -> Reached:
    """As `reach`, over the settings that the options let vary.

    Objectives other than the step time keep the settings of the fastest layout with even stages.
    Unlike node groups, and uneven stages alone, keep those of the job.

    Raises:
        PlanError: As `reach`.
    """
    options = context.options
    varied = not is_heterogeneous(job.cluster) and not wants_uneven(options)
    every = combinations(job, options.search_options) if varied else ()
    if len(every) < 2:
        return reach(context, job)
    asked = [_asked(context, one) for one in every if not one.covered]
    _search_even(context, asked)
    best = min(asked, key=lambda one: (one.value, len(one.combination.settings)))
    if best.found is None or best.found.finalists is None:
        return reach(context, job)
    if options.objective != "time":
        settings = _needed(best, best.found.finalists)
        chosen = _reported(context, (), settings)
        return replace(reach(context, with_settings(job, settings)), settings=chosen)
    if looks_for_uneven(job, options):
        _search_uneven(context, asked, best)
    return _reached(context, job, every, asked)


def _asked(context: SearchContext, one: Combination) -> _Asked:
    inside = replace(context, only=(*context.only, *one.only))
    return _Asked(one, inside, inside.search(one.job, top=num_finalists(context)))


def _search_even(context: SearchContext, asked: Sequence[_Asked]) -> None:
    def search(one: _Asked, cutoff: float) -> tuple[float, float]:
        one.found = one.search.run(UntilProved(one.search, context.budget), cutoff)
        bound = one.found.lower_bound_s
        return one.found.value, bound if cutoff == ANY else min(bound, cutoff)

    floors = [(one, one.search.nodes.smallest) for one in asked]
    floors.sort(key=lambda pair: (pair[1], len(pair[0].combination.settings)))
    for one, _, bound in best_first(floors, search, context.budget.spent, ANY):
        one.even_bound = bound


def _search_uneven(context: SearchContext, asked: Sequence[_Asked], best: _Asked) -> None:
    """The best combination with even stages first; together they open what one alone would.

    With a time limit each takes a part of what is left, and those that are open then go on, the one
    with the smallest bound first. Splits with any chunks come after all of it: what the plan proves
    is of chunks alike.
    """
    left, budget = EXPANDED_WITHOUT_LIMIT, alike_budget(context.budget)

    def search(one: _Asked, cutoff: float) -> tuple[float, float]:
        nonlocal left
        assert one.found is not None
        one.begun = begin_splits(
            replace(one.context, budget=part_of(budget, SHARE)),
            one.job,
            one.found,
            cutoff,
            max_expanded=left,
            one_of_many=one is not best,
        )
        one.uneven = one.begun.alike
        left = max(0, left - one.uneven.expanded)
        split = one.uneven.step_time_s if one.uneven.table else np.inf
        return split, one.uneven.lower_bound_s

    floors = [(one, _uneven_floor(one)) for one in asked if one is not best]
    floors.sort(key=lambda pair: pair[1])
    searched = [(best, -np.inf), *floors]
    for one, _, bound in best_first(searched, search, budget.spent, best.value, found=True):
        one.uneven_bound = max(bound, one.search.nodes.smallest)
    value = min(one.value for one in asked)
    for one in sorted((one for one in asked if one.begun), key=lambda one: one.uneven_bound):
        assert one.begun is not None
        if budget.seconds_left() < np.inf and one.uneven_bound < value:
            one.begun = one.begun.within(budget, value).further()
            one.uneven = one.begun.alike
            value = min(value, one.value)
            one.uneven_bound = max(one.uneven_bound, min(one.uneven.lower_bound_s, value))
    for one in sorted((one for one in asked if one.begun), key=lambda one: one.value):
        assert one.begun is not None
        one.uneven = one.begun.within(context.budget, value).with_any_chunks()
        value = min(value, one.value)


def _uneven_floor(one: _Asked) -> float:
    """Uneven stages need more than one pipeline rank. Source: as `UnevenSearch`."""
    nodes = one.search.nodes
    return float(nodes.bound[nodes.table.pp > 1].min(initial=np.inf))


def _reached(
    context: SearchContext, job: Job, every: Sequence[Combination], asked: Sequence[_Asked]
) -> Reached:
    """The answer of the fastest combination, with alternatives under the settings it needs."""
    best = min(asked, key=lambda one: (one.value, len(one.combination.settings)))
    even = min(one.found.value for one in asked if one.found)
    split = best.uneven if best.uneven and best.uneven.table else None
    answer = split.table if split else best.found.finalists if best.found else None
    assert answer is not None
    settings = _needed(best, answer)
    chosen = with_settings(job, settings)
    found = _alternatives(context, best, chosen)
    bound = min(one.even_bound for one in asked)
    apart = not any(found.space is one.search.space for one in asked)
    priced = sum(one.search.priced for one in asked) + apart * found.priced
    even = min(even, found.value)
    found = replace(found, lower_bound_s=bound, value=even, priced=priced)
    uneven = None
    if looks_for_uneven(job, context.options):
        least = min(one.uneven_bound for one in asked)
        simulated = sum(one.uneven.num_simulated for one in asked if one.uneven)
        table = split.table if split else None
        uneven = UnevenResult(
            table,
            min(best.value, even),
            min(least, best.value),
            simulated,
            any_split_lower_bound_s=_any_split_bound(asked, best.value),
        )
    target = step_target(context, chosen, even, bound)
    reported = _reported(context, _tried(every, asked), settings)
    return Reached(chosen, found, target, uneven_result=uneven, settings=reported)


def _any_split_bound(asked: Sequence[_Asked], value: float) -> float | None:
    """No split of any combination is faster, whatever its chunks hold; null where one is not known.

    Source: the floor of a combination that was not searched is a node bound, which holds for every
    split.
    """
    bounds = [
        one.uneven.any_split_lower_bound_s if one.uneven else _uneven_floor(one) for one in asked
    ]
    known = [bound for bound in bounds if bound is not None]
    return min(*known, value) if len(known) == len(bounds) else None


def _alternatives(context: SearchContext, best: _Asked, job: Job) -> SearchResult:
    """The finalists under the settings of the answer; what is known where no more is wanted."""
    assert best.found is not None
    if context.options.only_answer or context.budget.spent():
        return best.found
    search, budget = best.search, DeadlineBudget(context.budget)
    whole = job == best.job and not best.combination.only and search.cutoff == ANY
    search = search if whole else context.search(job, top=num_finalists(context))
    found = search.run(budget, ANY)
    if found.value <= best.found.value * (1 + SAME):
        return found
    return replace(found, finalists=best.found.finalists, complete=False)  # time was short


def _needed(best: _Asked, answer: LayoutTable) -> tuple[Setting, ...]:
    """The settings of a combination without those that save its answer nothing."""
    settings, row = best.combination.settings, answer.take(np.array([0]))
    plain = _step_seconds(best, settings, row)
    while True:
        same = (
            rest
            for rest in without_one(best.job, settings)
            if _step_seconds(best, rest, row) <= plain * (1 + SAME)
        )
        fewer = next(same, None)
        if fewer is None:
            return settings
        settings = fewer


def _step_seconds(best: _Asked, settings: Sequence[Setting], row: LayoutTable) -> float:
    """Of the answer under other settings; infinite where it is not allowed or does not fit."""
    job = with_settings(best.combination.plain, settings)
    if broken_rules(job, row)[0]:
        return np.inf
    machine, margin = machine_for(job, best.context.measured), best.context.options.memory_margin
    one = explicit(context_of(job, machine).with_table(row), memory_margin=margin)[0]
    return one.step_time_s if one.memory.fits else np.inf


def _tried(every: Sequence[Combination], asked: Sequence[_Asked]) -> tuple[TriedSettings, ...]:
    """Every combination; one that others cover has none but their layouts."""
    found = {one.combination: one for one in asked}
    listed = [(one, found.get(one)) for one in every]
    listed.sort(key=lambda pair: (pair[1].value, pair[1].bound) if pair[1] else (np.inf, np.inf))
    return tuple(
        TriedSettings(
            options=_texts(one.settings),
            value=finite(own.value) if own else None,
            lower_bound=finite(min(own.bound, own.value)) if own else None,
        )
        for one, own in listed
    )


def _reported(
    context: SearchContext, tried: tuple[TriedSettings, ...], settings: Sequence[Setting]
) -> Settings:
    level = context.options.search_options
    return Settings(level=level, chosen=_texts(settings), combinations=tried)


def _texts(settings: Sequence[Setting]) -> tuple[str, ...]:
    return tuple(one.text for one in settings)

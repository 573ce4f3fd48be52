"""The fastest layout over settings of the runtime and splits of the layers.

Even stages first, then uneven ones: each is one tree over all combinations of settings. The proof
holds over all: no layout under any combination is faster than the smallest of their bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.layouts import LayoutTable, legal_rows
from trainplan.costmodel.runtimes import Setting
from trainplan.costmodel.step import explicit
from trainplan.planner.goals.cluster_sizes import longest_step
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.even import EvenAnswer, EvenTree
from trainplan.planner.goals.uneven import (
    Splits,
    faster_splits,
    looks_for_uneven,
    splits_of,
    wants_uneven,
)
from trainplan.planner.plan import Settings, Target, TriedSettings, finite
from trainplan.planner.settings import Combination, with_settings, without_one
from trainplan.planner.space import legality_rules
from trainplan.planner.stages import TRIED_FIRST
from trainplan.planner.tree import SearchResult, UnevenResult

SAME = 1e-9
"""Relative difference of two step times that is no more than rounding."""


@dataclass(frozen=True, slots=True)
class Fastest:
    """The fastest layouts, and what is proved of them."""

    context: SearchContext
    """Of the job with the settings that the answer needs."""
    found: SearchResult
    """Of even stages; its finalists are under those settings."""
    target: Target | None
    """None where nothing fits."""
    uneven_result: UnevenResult | None = None
    settings: Settings | None = None
    """What is proved of settings, where some were varied."""


def fastest(
    context: SearchContext,
    every: Sequence[Combination] = (),
    tree: EvenTree | None = None,
    splits: Splits | None = None,
) -> Fastest:
    """The best layout of a job under each of some combinations, or under its own settings alone.

    A tree of them that has begun goes on, and so do `splits`, of its groups.

    Raises:
        PlanError: A number of the machine is unknown.
    """
    every = every or (Combination(context.job, ()),)
    tree = tree or EvenTree.begin(context, every, top=_seeds(context))
    found = tree.run(context)
    if found.finalists is None:
        return _nothing(context, every, found)
    even, uneven_result = tree.answer(), None
    if looks_for_uneven(context) and not wants_uneven(context.options):
        splits = splits or splits_of(context, even)
        uneven_result = faster_splits(context, even, splits)
    return _fastest(context, every, tree, uneven_result)


def settings_of_fastest(context: SearchContext) -> tuple[SearchContext, Settings | None]:
    """A job with the settings that its fastest layout with even stages needs."""
    every = context.options.combinations(context)
    if len(every) < 2:
        return context, None
    tree = EvenTree.begin(context, every, top=1)
    if tree.run(context).finalists is None:
        return context, None
    even = tree.answer()
    assert even.finalists is not None
    settings = needed(context, even.combination, even.finalists)
    own = context.with_job(with_settings(context.job, settings))
    return own, _reported(context, (), settings)


def _nothing(context: SearchContext, every: Sequence[Combination], found: SearchResult) -> Fastest:
    """Nothing fits under any combination: the reasons are those of the job's own settings."""
    if found.complete and not np.isfinite(context.beat_s):
        own = context if len(every) > 1 else context.with_job(every[0].job)
        found = own.search(exhaustive=True).run(context.budget)
    return Fastest(context, found, None)


def _fastest(
    context: SearchContext,
    every: Sequence[Combination],
    tree: EvenTree,
    uneven_result: UnevenResult | None,
) -> Fastest:
    """The answer with alternatives under the settings that it needs."""
    even = tree.answer()
    split = uneven_result if uneven_result and uneven_result.table is not None else None
    place = even.place_of(split.job) if split and split.job else even.place
    best = tree.groups[place[0]].members[place[1]].combination
    answer = split.table if split else even.finalists
    assert answer is not None
    settings = needed(context, best, answer)
    chosen = context.with_settings(best, settings)
    found = _alternatives(chosen, tree, even, best)
    bound, value = tree.lower_bound_s, min(even.value, found.value)
    found = replace(found, lower_bound_s=min(bound, value), value=value)
    tried = _tried(every, tree, best, uneven_result)
    reported = _reported(context, tried, settings) if len(every) > 1 else None
    target = step_target(chosen, value, found.lower_bound_s)
    return Fastest(chosen, found, target, uneven_result, reported)


def _alternatives(
    context: SearchContext, tree: EvenTree, even: EvenAnswer, best: Combination
) -> SearchResult:
    """The finalists under the settings of the answer; what is known where no more is wanted.

    They come last: the time goes to the answer first.
    """
    search = tree.searches[even.place[0]]
    known = search.result(complete=False)
    priced = sum(one.priced for one in tree.searches)
    own = even.finalists if best is even.combination else None
    if own is None and even.finalists is not None:
        own = even.finalists.take(np.arange(0))
    known = replace(known, finalists=own, priced=priced)
    if context.options.only_answer:
        return replace(known, complete=tree.lower_bound_s >= even.value)
    if context.budget.spent():
        return known
    again = context.search(top=num_finalists(context))
    found = context.best(again)  # in silence: all is proved
    priced += again.priced
    if found.finalists is None or (own and found.value > even.value * (1 + SAME)):  # no time left
        return known
    return replace(found, priced=priced)


def _seeds(context: SearchContext) -> int:
    """Answers of even stages, of different degrees, that are looked for at the same time."""
    return num_finalists(context)


def num_finalists(context: SearchContext) -> int:
    """Layouts that are listed, or whose stages are split before any others."""
    options = context.options
    alone = options.only_answer and options.tries_uneven is None
    return options.top if alone else max(options.top, TRIED_FIRST)


def step_target(context: SearchContext, step_s: float, lower_bound_s: float) -> Target:
    """The step time of an answer; whether it is in time is checked when the search ends."""
    limit = longest_step(context)
    return Target(
        name="time",
        unit="s",
        per="step",
        value=step_s,
        lower_bound=lower_bound_s,
        step_time_limit_s=limit if np.isfinite(limit) else None,
    )


def needed(context: SearchContext, best: Combination, answer: LayoutTable) -> tuple[Setting, ...]:
    """The settings of a combination without those that save its answer nothing."""
    settings, row = best.settings, answer.take(np.array([0]))
    plain = _step_seconds(context, best, settings, row)
    while True:
        same = (
            rest
            for rest in without_one(best, settings)
            if _step_seconds(context, best, rest, row) <= plain * (1 + SAME)
        )
        fewer = next(same, None)
        if fewer is None:
            return settings
        settings = fewer


def _step_seconds(
    context: SearchContext, best: Combination, settings: Sequence[Setting], row: LayoutTable
) -> float:
    """Of the answer under other settings; infinite where it is not allowed or does not fit."""
    own, margin = context.with_settings(best, settings), context.margin
    rules = (*own.options.rules_of_evidence(own), *legality_rules(own.traits))
    if not legal_rows(own.job, rules, row)[0]:
        return np.inf
    one = explicit(own.with_table(row), memory_margin=margin)[0]
    return one.step_time_s if one.memory.fits else np.inf


def _tried(
    every: Sequence[Combination],
    tree: EvenTree,
    best: Combination,
    uneven_result: UnevenResult | None,
) -> tuple[TriedSettings, ...]:
    """Every combination; one that others cover has none but their layouts.

    Combinations of a group share its bound.
    """
    values = tree.values()
    incumbent = min(values.values())
    least = np.inf
    if uneven_result is not None:
        incumbent = min(incumbent, uneven_result.step_time_s)
        values[best] = min(values.get(best, np.inf), incumbent)
        least = uneven_result.lower_bound_s
    bounds = {
        one.combination: min(search.smallest, least, values.get(one.combination, np.inf))
        for group, search in zip(tree.groups, tree.searches, strict=True)
        for one in group.members
    }
    listed = sorted(every, key=lambda one: (values.get(one, np.inf), bounds.get(one, np.inf)))
    return tuple(
        TriedSettings(
            options=texts_of(one.settings),
            value=finite(values.get(one, np.inf)),
            lower_bound=finite(min(bounds[one], incumbent)) if one in bounds else None,
        )
        for one in listed
    )


def _reported(
    context: SearchContext, tried: tuple[TriedSettings, ...], settings: Sequence[Setting]
) -> Settings:
    level = context.options.search_options
    return Settings(level=level, chosen=texts_of(settings), combinations=tried)


def texts_of(settings: Sequence[Setting]) -> tuple[str, ...]:
    """As on the command line."""
    return tuple(one.text for one in settings)

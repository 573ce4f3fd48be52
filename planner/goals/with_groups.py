"""A finished search of different node groups, gone on with whole pipeline ranks in each of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.fastest import needed, step_target, texts_of
from trainplan.planner.goals.reach import Reached
from trainplan.planner.settings import Combination, with_settings
from trainplan.planner.space import legality_rules
from trainplan.planner.stages import HeterogeneousResult, HeterogeneousSearch
from trainplan.planner.tree import Group


def with_groups(context: SearchContext, reached: Reached) -> Reached:
    """The same answer, or a faster one whose pipeline ranks live in one node group each.

    The bound then holds for both kinds of layout, under every combination of settings.
    """
    options, found = context.options, reached.found
    if options.objective != "time" or not is_heterogeneous(context.job.cluster):
        return reached
    chosen = set(reached.settings.chosen if reached.settings else ())
    every = [one for one in options.combinations(context) if not one.covered]
    every.sort(key=lambda one: len(chosen.symmetric_difference(texts_of(one.settings))))
    pairs = [(own, _rules(own, one)) for one, own in ((x, context.with_job(x.job)) for x in every)]
    heterogeneous = _search(context, pairs, min(found.value, context.beat_s)).run(options.top)
    bound = min(found.lower_bound_s, heterogeneous.lower_bound_s)
    found = replace(found, lower_bound_s=bound, complete=found.complete and heterogeneous.complete)
    reached = replace(reached, found=found)
    if heterogeneous.layouts:
        reached = _changed(context, reached, every[heterogeneous.combination], heterogeneous)
    elif found.finalists is None:
        return reached
    target = step_target(reached.context, reached.found.value, bound)
    return replace(reached, target=target)


def bound_in_groups(context: SearchContext, groups: Sequence[Group]) -> float:
    """Seconds that no layout beats whose pipeline ranks live in one node group each.

    `groups` are the combinations of settings: no layout is slower under the first of a group.
    """
    pairs = []
    for group in groups:
        contexts = [context.with_job(one.job) for one in group.members]
        members = [
            replace(one, rules=_rules(own, one.combination))
            for one, own in zip(group.members, contexts, strict=True)
        ]
        pairs.append((contexts[0], Group(tuple(members)).rules))
    return _search(context, pairs, np.inf).bound


def _search(
    context: SearchContext, pairs: Sequence[tuple[Context, Sequence[Rule]]], beat_s: float
) -> HeterogeneousSearch:
    margin, budget = context.margin, context.budget
    return HeterogeneousSearch(pairs, margin, beat_s, budget, workers=context.workers)


def _rules(own: SearchContext, one: Combination) -> tuple[Rule, ...]:
    """What layouts under a combination of settings must respect."""
    return (*one.only, *own.options.rules_of_layouts(own), *legality_rules(own.traits))


def _changed(
    context: SearchContext, reached: Reached, own: Combination, faster: HeterogeneousResult
) -> Reached:
    """The answer with layouts in groups, under the settings that the fastest needs."""
    best, table = faster.layouts[0]
    settings = needed(context, own, table)
    job = with_settings(own.plain, settings)
    finalists = reached.found.finalists if job == reached.job else None
    finalists = _joined(finalists, faster, context.options.top)
    found = replace(reached.found, finalists=finalists, value=best)
    reported = reached.settings
    if reported is not None:
        reported = reported.model_copy(update={"chosen": texts_of(settings)})
    return replace(reached, context=context.with_job(job), found=found, settings=reported)


def _joined(
    finalists: LayoutTable | None, heterogeneous: HeterogeneousResult, top: int
) -> LayoutTable | None:
    """The faster layouts in groups before the others."""
    tables = [table for _, table in heterogeneous.layouts]
    whole = LayoutTable.concat([*tables, *([finalists] if finalists else [])])
    return whole.take(np.arange(min(len(whole), top)))

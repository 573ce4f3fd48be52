"""A finished search of unlike node groups, gone on with whole pipeline ranks in each of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.blocks.candidates import context_of
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.measured import machine_for
from trainplan.costmodel.pipeline.node_groups import is_heterogeneous
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.fastest import step_target
from trainplan.planner.goals.reach import Reached
from trainplan.planner.space import legality_rules
from trainplan.planner.stages.heterogeneous.search import HeterogeneousResult, HeterogeneousSearch


def with_groups(context: SearchContext, reached: Reached) -> Reached:
    """The same answer, or a faster one whose pipeline ranks live in one node group each.

    The bound then holds for both kinds of layout.
    """
    job, options, found = reached.job, context.options, reached.found
    if options.objective != "time" or not is_heterogeneous(job.cluster):
        return reached
    rules = [*options.rules_of_layouts(job), *legality_rules(job)]
    search = HeterogeneousSearch(
        context_of(job, machine_for(job, context.measured)),
        rules,
        options.memory_margin,
        found.value,
        context.budget,
        workers=context.workers,
    )
    heterogeneous = search.run(options.top)
    bound = min(found.lower_bound_s, heterogeneous.lower_bound_s)
    best = min(found.value, *(seconds for seconds, _ in heterogeneous.layouts), np.inf)
    if not np.isfinite(best):
        return reached
    target = step_target(context, job, best, bound)
    changed = replace(
        found,
        finalists=_joined(found.finalists, heterogeneous, options.top),
        lower_bound_s=bound,
        value=best,
        complete=found.complete and heterogeneous.complete,
    )
    return replace(reached, found=changed, target=target)


def _joined(
    finalists: LayoutTable | None, heterogeneous: HeterogeneousResult, top: int
) -> LayoutTable | None:
    """The faster layouts in groups before the others."""
    tables = [table for _, table in heterogeneous.layouts]
    whole = LayoutTable.concat([*tables, *([finalists] if finalists else [])])
    return whole.take(np.arange(min(len(whole), top)))

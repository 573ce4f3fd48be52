"""A finished search of unlike node groups, gone on with whole pipeline ranks in each of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.measured.calibration import machine_for
from trainplan.costmodel.pipeline.node_groups import unlike
from trainplan.planner.goals.context import Prober
from trainplan.planner.goals.reach import Reached, step_target
from trainplan.planner.space.choices import legality_rules
from trainplan.planner.stages.heterogeneous.search import MixedFound, MixedSearch


def with_groups(prober: Prober, reached: Reached) -> Reached:
    """The same answer, or a faster one whose pipeline ranks live in one node group each.

    The bound then holds for both kinds of layout.
    """
    job, options, found = reached.job, prober.options, reached.found
    if options.objective != "time" or not unlike(job.cluster):
        return reached
    machine = machine_for(job, prober.measured)
    rules = [*(choice.rule() for choice in options.choices), *legality_rules(job)]
    search = MixedSearch(job, machine, rules, options.memory_margin, found.value)
    mixed = search.run(prober.budget, options.top)
    bound = min(found.lower_bound_s, mixed.lower_bound_s)
    best = min(found.value, *(seconds for seconds, _ in mixed.layouts), np.inf)
    if not np.isfinite(best):
        return reached
    target = step_target(prober, job, best, bound)
    changed = replace(
        found,
        finalists=_joined(found.finalists, mixed, options.top),
        lower_bound_s=bound,
        value=best,
        complete=found.complete and mixed.complete,
    )
    return replace(reached, found=changed, target=target)


def _joined(finalists: LayoutTable | None, mixed: MixedFound, top: int) -> LayoutTable | None:
    """The faster layouts in groups before the others."""
    tables = [table for _, table in mixed.layouts]
    whole = LayoutTable.concat([*tables, *([finalists] if finalists else [])])
    return whole.take(np.arange(min(len(whole), top)))

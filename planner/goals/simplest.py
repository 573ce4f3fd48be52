"""Simpler layouts among those that the model can hardly tell from the fastest.

The fastest by the model is often faster by less than the model is right, and has uneven stages or
many virtual ones for it. `planner.questions.candidates` takes the simplest within the slack for the
answer; here is what the table of alternatives may lack, the best layout of each degrees alone.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.step import step_seconds
from trainplan.planner.goals.cluster_sizes import longest_step
from trainplan.planner.goals.reach import Reached
from trainplan.planner.goals.uneven import wants_uneven
from trainplan.planner.plan import FREE
from trainplan.planner.tree import SIMPLICITY_COLUMNS, Simplicity, complexity


def roomy(reached: Reached, cutoff_s: float) -> LayoutTable | None:
    """The fastest even layout that leaves a tenth of the memory free, if it beats some seconds."""
    own = reached.context
    if is_heterogeneous(own.job.cluster) or wants_uneven(own.options) or own.budget.spent():
        return None
    search = own.search(memory_bytes=own.machine.memory_bytes * (1 - FREE))
    return own.best(search, min(cutoff_s, np.nextafter(longest_step(own), np.inf))).finalists


def with_simpler(reached: Reached) -> LayoutTable:
    """The finalists, and even layouts within the slack that are as simple as any of the grid.

    Two searches under the settings of the fastest: how simple an answer may be, and the fastest
    layouts that are no less so.
    """
    own, found = reached.context, reached.found
    finalists, options = found.finalists, own.options
    assert finalists is not None
    listed = finalists.take(np.arange(min(len(finalists), options.top)))
    if not options.takes_simplest or is_heterogeneous(own.job.cluster) or wants_uneven(options):
        return listed
    limit = min(found.value * (1 + options.slack_fraction), longest_step(own))
    even = np.array([not listed.row(i).stages for i in range(len(listed))])
    known = complexity(listed)[even & (step_seconds(own.with_table(listed)) <= limit)]
    known = known.min(initial=np.inf)
    least = min(own.best(own.search(Simplicity(limit)), float(known)).value, known)
    if not np.isfinite(least) or own.budget.spent():
        return listed
    alike = Rule(
        name="simplest",
        columns=frozenset(SIMPLICITY_COLUMNS),
        broken=lambda job, table: complexity(table) > least,
        says="a simpler layout is as fast",
        source="planner.tree.result.complexity",
    )
    search = replace(own, only=(*own.only, alike)).search(top=options.top)
    simple = own.best(search, float(np.nextafter(limit, np.inf))).finalists
    return listed if simple is None else LayoutTable.concat([listed, simple])

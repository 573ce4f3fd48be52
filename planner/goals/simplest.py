"""Simpler layouts among near-ties of the fastest.

The fastest by the model is often faster by less than the model is right, and has uneven stages or
many virtual ones for it. `planner.questions.candidates` takes the simplest within the slack for the
answer; here is what the table of alternatives may lack, the best layout of each degrees alone.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.layouts import LayoutTable, Rule, legal_rows
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.step import step_seconds
from trainplan.planner.evidence import published_rules
from trainplan.planner.goals.cluster_sizes import longest_step
from trainplan.planner.goals.reach import Reached
from trainplan.planner.goals.uneven import wants_uneven
from trainplan.planner.plan import FREE, SearchOptions
from trainplan.planner.tree import SIMPLICITY_COLUMNS, SearchResult, Simplicity, complexity
from trainplan.planner.work import Budget, part_of

SHARE_OF_TIES = 1 / 8
"""Of a time limit, kept for simpler layouts. Source: assumed; their searches are bounded by the
answer, and without them a limit that strikes would make the answer an odd one."""


def time_before_ties(options: SearchOptions, limit: Budget) -> Budget:
    """A time limit without what the search for simpler layouts may take."""
    return part_of(limit, 1 - SHARE_OF_TIES) if options.takes_simplest else limit


def roomy(reached: Reached, cutoff_s: float) -> SearchResult | None:
    """A search for the fastest even layout that leaves a tenth of the memory free.

    Only one that beats some seconds is looked for; null: not searched.
    """
    own = reached.context
    if is_heterogeneous(own.job.cluster) or wants_uneven(own.options) or own.budget.spent():
        return None
    search = own.search(memory_bytes=own.machine.memory_bytes * (1 - FREE))
    return own.best(search, min(cutoff_s, np.nextafter(longest_step(own), np.inf)))


def with_simpler(reached: Reached) -> LayoutTable:
    """The finalists, and even layouts within the slack that are as simple as any of the grid.

    Two searches under the settings of the fastest: how simple an answer may be, of those like
    published ones if there are any, and the fastest layouts that are no less so.
    """
    own, found = reached.context, reached.found
    finalists, options = found.finalists, own.options
    assert finalists is not None
    listed = finalists.take(np.arange(min(len(finalists), options.top)))
    if not options.takes_simplest or is_heterogeneous(own.job.cluster) or wants_uneven(options):
        return listed
    limit = min(found.value * (1 + options.slack_fraction), longest_step(own))
    even = np.array([not listed.row(i).stages for i in range(len(listed))])
    even &= step_seconds(own.with_table(listed)) <= limit
    free = own
    for rules in (published_rules(own.job, options.chosen), ()):
        own = replace(free, only=(*free.only, *rules))
        known = complexity(listed)[even & legal_rows(own.job, rules, listed)].min(initial=np.inf)
        least = min(own.best(own.search(Simplicity(limit)), float(known)).value, known)
        if np.isfinite(least):
            break
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

"""The table of alternatives: finalists on the clock, the answer first, then the fastest."""

import numpy as np

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import Estimate, explicit
from trainplan.costmodel.uncertainty import is_near_tie
from trainplan.planner.evidence import evidence_on, stays_inside, unpublished
from trainplan.planner.plan import FREE, Candidate, SearchOptions
from trainplan.planner.tree import complexity

MEMORY_STEP = 0.05
"""Shares of the memory that differ by less are equal. Source: assumed."""


def candidates_of(
    on: Context, options: SearchOptions, finalists: LayoutTable
) -> tuple[Candidate, ...]:
    """The answer first, then the others by time; each layout once.

    The answer is the simplest layout within the slack, else the first, which is the best by the
    objective; that and the fastest with free memory are never cut off. What was measured is left
    out where the answer alone is wanted.
    """
    finalists = _each_once(finalists)
    estimates = explicit(on.with_table(finalists), memory_margin=options.margin(on.job))
    layouts = [finalists.row(i) for i in range(len(estimates))]
    seconds = [estimate.step_time_s for estimate in estimates]
    first, simple = 0, complexity(finalists).tolist()
    if options.takes_simplest:
        limit = seconds[0] * (1 + options.slack_fraction)
        near = (i for i, one in enumerate(seconds) if one <= limit)
        first = min(near, key=lambda i: _order(on, options, layouts[i], estimates[i], simple[i]))
    ties = [
        is_near_tie(layout, one, layouts[first], seconds[first])
        for layout, one in zip(layouts, seconds, strict=True)
    ]
    order = sorted(range(len(layouts)), key=lambda i: (i != first, seconds[i]))
    kept = order[: options.top]
    if options.takes_simplest:
        roomy = (i for i in order if estimates[i].memory.leaves(FREE))
        also = {0, next(roomy, first)}
        kept = [*kept, *(i for i in order[options.top :] if i in also)]
    return tuple(
        Candidate(
            rank=rank,
            layout=layouts[i],
            estimate=estimates[i],
            near_tie=ties[i] and i != first,
            inside_measured=None if options.only_answer else stays_inside(on, layouts[i]),
        )
        for rank, i in enumerate(kept, start=1)
    )


def _each_once(table: LayoutTable) -> LayoutTable:
    rows = [table.row(i) for i in range(len(table))]
    return table.take(np.array([i for i, row in enumerate(rows) if row not in rows[:i]]))


def _order(
    on: Context, options: SearchOptions, layout: Layout, priced: Estimate, complexity: float
) -> tuple[bool, bool, float, int, int, float, float]:
    """Like published ones first, then the simplest; then seconds.

    Simple is: even stages, degrees, knobs, free memory, the nearest run.
    """
    memory = priced.memory
    free = 1 - memory.peak_reserved_bytes / memory.capacity_bytes
    return (
        bool(unpublished(on, layout, options.chosen)),
        bool(layout.stages),
        complexity,
        sum(not axis.is_off(layout) for axis in AXES),
        -int(free / MEMORY_STEP),
        evidence_on(on, layout).nearest[0].distance,
        priced.step_time_s,
    )

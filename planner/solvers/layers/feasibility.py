"""Is an answer to a `LayerAssignment` feasible? Checked by every solver, and by tests."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.layouts import FloatColumn, IntColumn
from trainplan.planner.solvers.layers.assignment import Counts, LayerAssignment

ROUNDING = 1e-9
"""Part of a capacity that sums of needs may miss by rounding. Source: assumed; 100 bytes of
100 GB, and a million times the rounding of one sum."""


def limits(problem: LayerAssignment) -> FloatColumn:
    """Capacities with what rounding may add; the unit of each need."""
    return problem.capacities + ROUNDING * np.abs(problem.capacities)


def allowed(problem: LayerAssignment, counts: Counts) -> bool:
    """Do the counts break none of the constraints?"""
    held = counts.sum(axis=1)
    needs = np.einsum("jsw,sw->j", problem.needs, counts)
    return bool(
        (counts >= 0).all()
        and (held >= problem.least).all()
        and (held <= problem.most).all()
        and (needs <= limits(problem)).all()
        and in_order(problem, counts)
        and not any(np.array_equal(counts, refused) for refused in problem.refused)
    )


def in_order(problem: LayerAssignment, counts: Counts) -> bool:
    """Do the stages, one after the other, hold the layers of the model?"""
    ways, layers = np.array(problem.kind_of_way), np.array(problem.layers, np.int64)
    ends = np.cumsum(counts.sum(axis=1))
    if (ends[-1] if len(ends) else 0) != len(layers):
        return False
    for kind in {*problem.kind_of_way, *problem.layers}:
        before = np.concatenate([[0], np.cumsum(layers == kind)])
        if (np.cumsum(counts[:, ways == kind].sum(axis=1)) != before[ends]).any():
            return False
    return True


def reach(problem: LayerAssignment) -> tuple[IntColumn, IntColumn]:
    """Layers before the end of each stage, the fewest and the most.

    No answer is allowed where the fewest are above the most.
    """
    layers, least, most = len(problem.layers), problem.least, problem.most
    after_least, after_most = least.sum() - np.cumsum(least), most.sum() - np.cumsum(most)
    first = np.maximum(np.cumsum(least), layers - after_most)
    last = np.minimum(np.cumsum(most), layers - after_least)
    return first, last

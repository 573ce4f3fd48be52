"""Layers of ranks as whole numbers: a bound of all splits where they are too many to list.

What a layer of a rank is part of matters most for the step, and there are few ways to spread layers
over ranks: each way is bounded by parts of layers on the chunks of its ranks
(`planner.stages.solve.relaxation`).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from trainplan.costmodel.layouts.table import IntSplitRanks
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.relaxation import Relaxed, relaxed
from trainplan.planner.stages.solve.windows import Windows, windows
from trainplan.planner.work import Deadline

MOST_TOTALS = 64
"""Ways to spread the layers over ranks that are bounded one by one; where there are more, all
together are. Source: assumed; each takes some hundredths of a second."""


def bound_of_totals(
    problem: StageProblem, pool: PathPool, window: Windows, limit_s: float, deadline: Deadline
) -> Relaxed:
    """The least bound of all ways to spread the layers over ranks, and its parts of layers.

    Without a deadline all ways together are bounded, which takes a tenth of the time.
    """
    best = relaxed(problem, pool, window, limit_s)
    layers = problem.job.model.num_hidden_layers
    few = 1 < window.count(layers) <= MOST_TOTALS
    if best.value_s >= limit_s or not few or deadline.seconds_left() == np.inf:
        return best
    least = replace(best, value_s=np.inf)
    for totals in _every(window, layers):
        if deadline.seconds_left() <= 0:
            return best
        own = windows(problem, pool.of(problem.pipeline), limit_s, within=Windows(totals, totals))
        if own is None:
            least = replace(least, memory_decides=True)
            continue
        found = relaxed(problem, pool, own, limit_s)
        memory = least.memory_decides or found.memory_decides
        least = replace(found if found.value_s < least.value_s else least, memory_decides=memory)
        if least.value_s <= best.value_s:
            break
    return replace(least, value_s=max(least.value_s, best.value_s))


def _every(window: Windows, layers: int) -> IntSplitRanks:
    """All ways to spread so many layers over ranks within windows; (way, rank)."""
    ends = zip(window.least.tolist(), window.most.tolist(), strict=True)
    every = np.array(list(product(*(range(low, high + 1) for low, high in ends))))
    return np.asarray(every[every.sum(axis=1) == layers])

"""Splits near a split: one layer moved, or two, for as long as that makes it faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.columns import IntColumn, IntMatrix
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.batch import ManySplits
from trainplan.planner.stages.solve.listed import (
    NOTHING_KNOWN,
    SplitResult,
    promising,
    simulate_listed,
    with_simulated,
)
from trainplan.planner.stages.solve.windows import bounds_of_stages
from trainplan.planner.work import Deadline


def polished(
    problem: StageProblem, pool: PathPool, layers: IntMatrix, deadline: Deadline
) -> SplitResult:
    """The best of some splits, then of those near the best, again and again; it proves nothing."""
    best = with_simulated(problem, pool, layers, NOTHING_KNOWN)
    least, ways, way = bounds_of_stages(problem)[0], (moved_once, moved_twice), 0
    while way < len(ways) and best.layers is not None and deadline.seconds_left() > 0:
        before, some = (
            best.step_time_s,
            ManySplits(problem, ways[way](np.array(best.layers), least)),
        )
        near = promising(some, pool.of(problem.pipeline), before)
        found = simulate_listed(
            ManySplits(problem, near.layers),
            near.bound,
            pool,
            best,
            cutoff_s=before,
            deadline=deadline,
            target_bound_s=np.inf,
        )
        best = replace(found, lower_bound_s=best.lower_bound_s)
        way = 0 if best.step_time_s < before else way + 1
    return best


MOST_PAIRS = 40_000
"""Splits with two layers moved that are looked at together. Source: assumed; tenths of a second."""


def moved_once(layers: IntColumn, least: IntColumn) -> IntMatrix:
    """Every split with one layer on another virtual stage; (split, stage)."""
    stages = len(layers)
    from_, to = np.nonzero(~np.eye(stages, dtype=bool) & (layers > least)[:, None])
    found = np.tile(layers, (len(from_), 1))
    row = np.arange(len(from_))
    found[row, from_] -= 1
    found[row, to] += 1
    return found


def moved_twice(layers: IntColumn, least: IntColumn) -> IntMatrix:
    """Every split with two layers on other virtual stages, if they are few; (split, stage)."""
    once = moved_once(layers, least)
    if len(once) ** 2 > MOST_PAIRS:
        return once[:0]
    step = once - layers
    found = (once[:, None] + step).reshape(-1, len(layers))
    found = found[(found >= least).all(axis=1)]
    code = found @ (int(layers.sum()) + 1) ** np.arange(len(layers), dtype=np.float64)
    return np.asarray(found[np.unique(code, return_index=True)[1]])

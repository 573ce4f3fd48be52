"""Splits that are listed, judged in the order of their bounds.

Near a split are those with one layer moved, or two: tried for as long as that makes it faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn, IntMatrix, objects
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.timeline import EQUALS, Paths
from trainplan.planner.policies import with_fraction
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.batch import ManySplits, simulate_splits
from trainplan.planner.stages.solve.windows import bounds_of_stages
from trainplan.planner.work import Deadline

SIMULATED_AT_ONCE = 8
BOUNDED_AT_ONCE = 1 << 16
"""Virtual stages of splits that are bounded together, so that they stay in a cache."""


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What is known when the search for a split ends."""

    layers: tuple[int, ...] | None
    """Layers of every stage of the best split below the cutoff."""
    offload: float
    """Fraction of the optimizer that it offloads."""
    step_time_s: float
    """Its step time; infinite without one."""
    lower_bound_s: float
    """No split is faster; where none is faster than the cutoff, at least the cutoff."""
    num_simulated: int
    """Splits whose schedule was run."""
    memory_decides: bool
    """Memory decided something; else a layout that only takes longer has no faster split."""

    def prune(self, cutoff_s: float) -> SplitResult:
        """The same, its split forgotten unless it is faster than the cutoff."""
        if self.step_time_s * EQUALS < cutoff_s:
            return self
        return replace(self, layers=None, step_time_s=np.inf)

    def of(self, problem: StageProblem) -> LayoutTable:
        """The layout with the split and what it offloads."""
        assert self.layers is not None
        stages = objects([problem.stages(self.layers)])
        return with_fraction(problem.table, self.offload).replaced(stages=stages)


NOTHING_KNOWN = SplitResult(None, 0.0, np.inf, 0.0, 0, memory_decides=True)
"""Of a layout before any of its splits is judged."""


def with_simulated(
    problem: StageProblem, pool: PathPool, layers: IntMatrix, best: SplitResult
) -> SplitResult:
    """What is known when some more splits are judged."""
    tried = simulate_splits(problem, layers)
    pool.add(problem.pipeline, tried.paths)
    times = np.where(tried.fits, tried.step_time_s, np.inf)
    first = int(np.argmin(times))
    refused = best.memory_decides or not tried.fits.all()
    best = replace(best, num_simulated=best.num_simulated + len(times), memory_decides=refused)
    if times[first] >= best.step_time_s:
        return best
    found, offload = tuple(layers[first].tolist()), float(tried.offload[first])
    return replace(best, layers=found, offload=offload, step_time_s=float(times[first]))


def judge_listed(
    problem: StageProblem,
    pool: PathPool,
    best: SplitResult,
    cutoff_s: float,
    *,
    stages: IntMatrix,
    deadline: Deadline,
    target_bound_s: float,
) -> SplitResult:
    """Judge some splits, all that may be faster than the cutoff."""
    paths = pool.of(problem.pipeline)
    if not len(stages):
        return replace(best, lower_bound_s=cutoff_s)
    size = max(1, BOUNDED_AT_ONCE // stages.shape[1])
    parts = [stages[start : start + size] for start in range(0, len(stages), size)]
    listed = [promising(ManySplits(problem, part), paths, cutoff_s) for part in parts]
    all_fit = all(part.all_fit for part in listed)
    best = replace(best, memory_decides=best.memory_decides or not all_fit)
    some = ManySplits(problem, np.concatenate([part.layers for part in listed]))
    bound = np.concatenate([part.bound for part in listed])
    return simulate_listed(
        some, bound, pool, best, cutoff_s=cutoff_s, deadline=deadline, target_bound_s=target_bound_s
    )


@dataclass(frozen=True, slots=True)
class _Promising:
    """Those of some splits that may be faster than a limit."""

    layers: IntMatrix
    bound: FloatColumn
    all_fit: bool
    """Did memory refuse none of the splits?"""


def promising(splits: ManySplits, paths: Paths, limit_s: float) -> _Promising:
    """Those that may fit and on which no known path is too long."""
    if not len(splits):
        return _Promising(splits.layers, np.zeros(0), all_fit=True)
    fits = splits.may_fit()
    some = splits.take(fits)
    bound = some.bound(paths) if len(some) else np.zeros(0)
    wins = bound * EQUALS < limit_s
    return _Promising(some.layers[wins], bound[wins], bool(fits.all()))


def simulate_listed(
    splits: ManySplits,
    bound: FloatColumn,
    pool: PathPool,
    best: SplitResult,
    *,
    cutoff_s: float,
    deadline: Deadline,
    target_bound_s: float,
) -> SplitResult:
    """Judge listed splits in the order of their bounds, which grow with every path found.

    Smallest first: once a bound is not below the best, none behind it is, and the rest is proved.
    """
    problem = splits.problem
    while True:
        limit = min(cutoff_s, best.step_time_s)
        wins = bound * EQUALS < limit
        splits, bound = splits.take(wins), bound[wins]
        if not len(bound):
            return replace(best, lower_bound_s=limit)
        best = replace(best, lower_bound_s=float(bound.min()))
        if deadline.seconds_left() <= 0 or best.lower_bound_s >= target_bound_s:
            return best
        order = np.argsort(bound, kind="stable")
        first, rest = order[:SIMULATED_AT_ONCE], order[SIMULATED_AT_ONCE:]
        known = len(pool.of(problem.pipeline).rank)
        best = with_simulated(problem, pool, splits.layers[first], best)
        splits, bound = splits.take(rest), bound[rest]
        paths = pool.of(problem.pipeline)
        if len(rest) and len(paths.rank) > known:
            bound = np.maximum(bound, splits.bound(paths.since(known)))


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

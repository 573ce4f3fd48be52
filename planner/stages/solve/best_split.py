"""The best split of a layout's layers into stages: bounds by known paths, and a simulation.

The simulation of a split returns its step time and the critical path. The path is there whatever
the split, so it raises the bounds of the others until none can beat the best one seen: that one is
optimal under the simulation itself, not under a stand-in for it. Source: Kelley, The Cutting-Plane
Method for Solving Convex Programs, J. SIAM 8, 1960; finite because a split is never tried twice.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.columns import IntColumn
from trainplan.costmodel.step.estimate import without_overhead
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.problem.offload import faster_than
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.problem.windows import Windows
from trainplan.planner.stages.solve.enumeration import num_splits, shorter_splits
from trainplan.planner.stages.solve.listed import (
    NOTHING_KNOWN,
    SplitResult,
    judge_listed,
    with_simulated,
)
from trainplan.planner.stages.solve.spread import balanced, stages_of
from trainplan.planner.stages.solve.windows import most_in_memory, windows
from trainplan.planner.work import Deadline

FEW = 2048
"""Splits that are looked at one by one; more are bounded together first."""
BOUNDED_AT_ONCE = 1 << 16
"""Virtual stages of splits that are bounded together, so that they stay in a cache."""


def best_split(
    problem: StageProblem,
    pool: PathPool,
    cutoff_s: float,
    deadline: Deadline,
    target_bound_s: float = np.inf,
) -> SplitResult:
    """The fastest split of a layout that fits and is faster than the cutoff, with its proof.

    It ends early where no split is faster than `target_bound_s`. A layout with very many splits
    stays open.
    """
    if not problem.uneven_too or not problem.bounds_hold:
        return _one_split(problem, pool, cutoff_s)
    layers = problem.job.model.num_hidden_layers
    settled = SplitResult(None, 0.0, np.inf, cutoff_s, 0, memory_decides=False)
    value = without_overhead(problem.machine, cutoff_s)
    problem = faster_than(problem, value)
    fast = windows(problem, pool.of(problem.pipeline), value, memory=False)
    if fast is None or not fast.count(layers):
        return settled
    window = windows(problem, pool.of(problem.pipeline), value, within=fast, in_time=True)
    if window is None or not window.count(layers):
        return replace(settled, memory_decides=True)
    decides = problem.offloads is not None or not window.equals(fast)
    best = replace(settled, lower_bound_s=0.0, memory_decides=decides)
    number = num_splits(problem, window)
    if problem.alike and number > FEW and target_bound_s < cutoff_s:
        return best_split(problem, pool, target_bound_s, deadline)
    if problem.alike and number * problem.num_stages > BOUNDED_AT_ONCE:
        start = stages_of(problem, balanced(problem))
        best = with_simulated(problem, pool, start, best).prune(cutoff_s)
        cutoff_s = min(cutoff_s, best.step_time_s)
    return _within(
        problem,
        pool,
        best,
        cutoff_s,
        window=window,
        deadline=deadline,
        target_bound_s=target_bound_s,
    )


def _one_split(problem: StageProblem, pool: PathPool, cutoff_s: float) -> SplitResult:
    """The even split where no other is allowed; where no path bounds all splits a balanced one."""
    start = np.array([problem.even])
    if problem.uneven_too:
        start = stages_of(problem, balanced(problem, most_in_memory(problem)))[:1]
    best = with_simulated(problem, pool, start, NOTHING_KNOWN).prune(cutoff_s)
    bound = 0.0 if problem.uneven_too else min(cutoff_s, best.step_time_s)
    return replace(best, lower_bound_s=bound)


def _within(
    problem: StageProblem,
    pool: PathPool,
    best: SplitResult,
    cutoff_s: float,
    *,
    window: Windows[IntColumn],
    deadline: Deadline,
    target_bound_s: float,
) -> SplitResult:
    """Judge all splits within some windows that are faster than the cutoff, or than the target.

    Where they are too many, the bound stays open.
    """
    for limit_s in sorted({cutoff_s, min(cutoff_s, target_bound_s)}, reverse=True):
        value, paths = without_overhead(problem.machine, limit_s), pool.of(problem.pipeline)
        narrow = windows(problem, paths, value, within=window)
        if narrow is None or not narrow.count(problem.job.model.num_hidden_layers):
            return replace(best, lower_bound_s=limit_s)
        stages = shorter_splits(problem, paths, value, narrow)
        if stages is not None:
            return judge_listed(
                problem,
                pool,
                best,
                limit_s,
                stages=stages,
                deadline=deadline,
                target_bound_s=target_bound_s,
            )
    return best

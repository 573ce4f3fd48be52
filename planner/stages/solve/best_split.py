"""The best split of a layout's layers into stages: bounds by known paths, and a simulation.

The simulation of a split returns its step time and the critical path. The path is there whatever
the split, so it raises the bounds of the others until none can beat the best one seen: that one is
optimal under the simulation itself, not under a stand-in for it. Source: Kelley, The Cutting-Plane
Method for Solving Convex Programs, J. SIAM 8, 1960; finite because a split is never tried twice.

Layouts of one skeleton that differ in what they recompute alone are a family and bounded together:
one problem stands for a family: its blocks take no longer and keep no more than those of any
member, so its splits below a limit are all that members have below it. They are listed once, and
each member is asked which of them it has bytes for, and how long they take.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from trainplan.costmodel.block_costs import BlockCosts
from trainplan.costmodel.columns import FloatColumn, IntColumn, distinct
from trainplan.costmodel.layouts import FULL, LayoutTable
from trainplan.costmodel.step import without_overhead
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.columns import IntSplitStages
from trainplan.planner.stages.problem.chunks import Windows
from trainplan.planner.stages.problem.of_layouts import faster_than
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.batch import ManySplits
from trainplan.planner.stages.solve.enumeration import num_splits, shorter_splits
from trainplan.planner.stages.solve.listed import (
    NOTHING_KNOWN,
    SplitResult,
    judge_listed,
    promising,
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
    settled = SplitResult(None, 0.0, np.inf, cutoff_s, 0, memory_decides=False)
    value = without_overhead(problem.machine, cutoff_s)
    problem = faster_than(problem, value)
    fast = windows(problem, pool.of(problem.pipeline), value, memory=False)
    if fast is None:
        return settled
    window = windows(problem, pool.of(problem.pipeline), value, within=fast, in_time=True)
    if window is None:
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
        if narrow is None:
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


MOST_SPLITS = 1 << 16
"""Splits within windows of a family that are listed. Source: assumed; some hundredths of a
second."""


def families(table: LayoutTable, branch: IntColumn) -> IntColumn:
    """A number for each row, equal where one problem may stand for them; -1 where none may.

    Those of one skeleton that recompute no whole layers and keep activations on the device, and
    offload some of the optimizer or none.
    """
    alone = (table.recompute == FULL) | (table.offload_modules != 0)
    number = distinct(branch, (table.offload_optimizer > 0).astype(np.int64))[1]
    return np.where(alone, -1, number)


def least_of(problems: Sequence[StageProblem]) -> StageProblem | None:
    """What takes no longer and holds no more than any of some layouts of one family.

    None where their forward passes differ, or what they may offload at most, and across unlike
    nodes: nothing is known then.
    Source: seconds of paths, of the update and bytes of ranks grow with those of every block.
    """
    first = problems[0]
    if len(first.parts) > 1:
        return None
    parts = [one.parts[0] for one in problems]
    forward = [one.costs.forward for one in parts]
    most = {None if one.offloads is None else one.offloads[1:] for one in problems}
    if len(most) > 1 or any(not np.array_equal(forward[0], other) for other in forward):
        return None
    offloads = first.offloads
    if offloads is not None:
        least = min(one.offloads.least for one in problems if one.offloads is not None)
        offloads = offloads._replace(least=least)
    names = (one.name for one in fields(BlockCosts) if one.name != "params")
    costs = {name: np.min([getattr(one.costs, name) for one in parts], axis=0) for name in names}
    part = replace(
        parts[0],
        costs=replace(parts[0].costs, **costs),
        transients=np.min([one.transients for one in parts], axis=0),
        tails=np.min([one.tails for one in parts], axis=0),
    )
    p2p = np.min([one.p2p for one in problems], axis=0)
    return replace(first, parts=(part,), p2p=p2p, offloads=offloads)


def splits_below(problem: StageProblem, pool: PathPool, limit_s: float) -> IntSplitStages | None:
    """All splits of a layout that may be below a limit; None where they are too many to list.

    Source: windows of ranks, then paths within them, as for the best split.
    """
    value, paths = without_overhead(problem.machine, limit_s), pool.of(problem.pipeline)
    problem = faster_than(problem, value)
    fast = windows(problem, paths, value, memory=False)
    window = fast and windows(problem, paths, value, within=fast, in_time=True)
    if window is None:
        return np.zeros((0, problem.num_stages), dtype=np.int64)
    few = num_splits(problem, window) <= MOST_SPLITS
    return shorter_splits(problem, paths, value, window) if few else None


@dataclass(frozen=True, slots=True)
class BoundFamily:
    """Seconds that no split of each member of a family goes below, as far as below some limits."""

    problems: tuple[StageProblem, ...]
    pool: PathPool
    """Paths known for their pipeline."""
    limits_s: tuple[float, ...]
    """Largest first; another is asked where more splits are below one than can be listed."""

    def __call__(self, deadline: Deadline) -> FloatColumn:
        """Bound of every member; 0 where nothing is known.

        Source: every split of a member that is below the limit is one of `least_of` that is, but
        for the traffic that its longer passes may hide; of these each member has its own seconds
        and bytes.
        """
        nothing = np.zeros(len(self.problems))
        least = least_of(self.problems)
        if least is None or deadline.seconds_left() <= 0:
            return nothing
        paths = self.pool.of(least.pipeline)
        for limit_s in self.limits_s:
            stages = splits_below(least, self.pool, limit_s + least.may_hide_s)
            if stages is not None:
                each = [promising(ManySplits(one, stages), paths, limit_s) for one in self.problems]
                return np.array([one.bound.min(initial=limit_s) for one in each])
        return nothing

"""Layouts of one skeleton that differ in what they recompute alone, bounded together.

One problem stands for a family: its blocks take no longer and keep no more than those of any
member, so its splits below a limit are all that members have below it. They are listed once, and
each member is asked which of them it has bytes for, and how long they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn, distinct
from trainplan.costmodel.layouts import FULL, LayoutTable
from trainplan.costmodel.step.block_costs import BlockCosts
from trainplan.costmodel.step.estimate import without_overhead
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.columns import IntSplitStages
from trainplan.planner.stages.problem.offload import faster_than
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.batch import ManySplits
from trainplan.planner.stages.solve.enumeration import num_splits, shorter_splits
from trainplan.planner.stages.solve.listed import promising
from trainplan.planner.stages.solve.windows import windows
from trainplan.planner.work import Deadline

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
    layers, paths = problem.job.model.num_hidden_layers, pool.of(problem.pipeline)
    value = without_overhead(problem.machine, limit_s)
    problem = faster_than(problem, value)
    none = np.zeros((0, problem.num_stages), dtype=np.int64)
    fast = windows(problem, paths, value, memory=False)
    if fast is None or not fast.count(layers):
        return none
    window = windows(problem, paths, value, within=fast, in_time=True)
    if window is None or not window.count(layers):
        return none
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

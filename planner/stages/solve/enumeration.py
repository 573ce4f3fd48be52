"""All splits of a layout on which no known path is too long, without listing the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainplan.costmodel.layouts import FloatColumn
from trainplan.costmodel.layouts.table import IntSplitRanks, IntSplitStages
from trainplan.costmodel.schedules.program import IntMatrix
from trainplan.costmodel.schedules.timeline.critical_path import Paths
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.windows import ROUNDING, PathSeconds, Windows, spread


def shorter_splits(
    problem: StageProblem, paths: Paths, value_s: float, window: Windows
) -> IntSplitStages:
    """Layers of every virtual stage in the splits whose paths may all be below a time.

    Shape (split, stage). Source: derived; a beginning of a split is dropped where some path is too
    long however the layers that are left are spread over the ranks behind it.
    """
    one = _Sums(problem, paths, window, longer_first=True).below(value_s)
    if problem.shape[1] == 1:
        return one
    other = _Sums(problem, paths, window, longer_first=False).below(value_s)
    totals = other[:, problem.stage_of].sum(axis=2)
    recompute_forward = (spread(problem, totals, longer_first=True) == other).all(axis=1)
    return np.concatenate([one, other[~recompute_forward]])


@dataclass(frozen=True)
class _Sums:
    """Seconds of paths as sums over ranks, each with its fewest layers and 0, 1, ... more."""

    problem: StageProblem
    paths: Paths
    window: Windows
    longer_first: bool

    def below(self, value_s: float) -> IntSplitStages:
        """Splits with no path above a time."""
        totals = self._totals(value_s * (1 + ROUNDING) - self._fixed)
        return spread(self.problem, totals, longer_first=self.longer_first)

    def _totals(self, most_s: FloatColumn) -> IntSplitRanks:
        """Layers of every rank, rank after rank."""
        left = np.array([self.problem.job.model.num_hidden_layers - int(self.window.least.sum())])
        chosen, seconds = np.zeros((1, 0), dtype=np.int64), np.zeros((1, len(most_s)))
        rests = self._rests(int(left[0]))
        for rank, width in enumerate(self.window.most - self.window.least):
            at, more = np.nonzero(left[:, None] >= np.arange(width + 1))
            rest = left[at] - more
            longer = seconds[at] + self._seconds[:, rank, more].T
            wins = (longer + rests[rank + 1][:, rest].T <= most_s).all(axis=1)
            left, seconds = rest[wins], longer[wins]
            chosen = np.concatenate([chosen[at[wins]], more[wins, None]], axis=1)
        return np.asarray(chosen[left == 0] + self.window.least)

    def _rests(self, most: int) -> list[FloatColumn]:
        """Seconds at least on the ranks from each one on with 0, 1, ... layers; (path, layers).

        Source: dynamic programming from the last rank to the first, each path for itself: a rest is
        the least, over the layers of one rank, of its seconds and those of the rest behind it.
        """
        ways = self._numbers.shape[1]
        rests = [np.where(np.arange(most + 1) > 0, np.inf, np.zeros((len(self._fixed), 1)))]
        before = np.full((len(self._fixed), ways + most), np.inf)
        fewer = np.lib.stride_tricks.sliding_window_view(before, ways, axis=1)
        for rank in range(len(self._numbers))[::-1]:
            before[:, ways - 1 :] = rests[0]
            rests.insert(0, (fewer + self._seconds[:, rank, None, ::-1]).min(axis=2))
        return rests

    @cached_property
    def _numbers(self) -> IntMatrix:
        """Layers of each rank: its fewest, and 0, 1, ... more; (rank, way)."""
        most = int((self.window.most - self.window.least).max())
        return np.asarray(self.window.least[:, None] + np.arange(most + 1))

    @cached_property
    def _seconds(self) -> FloatColumn:
        """What the layers of each rank add to every path; (path, rank, way)."""
        problem, paths = self.problem, self.paths
        kinds = [problem.kinds[0], problem.kinds[-1]]
        recompute_forward = problem.costs.recompute_forward[kinds, 0]
        repeated = np.minimum(problem.recomputed, self._stages.T) * recompute_forward.min()
        each = (
            self._of.layers
            + paths.backward[:, :, None]
            * (recompute_forward - recompute_forward.min())
            * problem.recomputes_all
        )
        seconds = self._by_kind(each) + paths.backward[:, :, None] * repeated
        ranks = seconds[:, problem.stage_of].sum(axis=2)
        own = np.arange(len(paths.rank)), paths.rank
        ranks[own] += problem.least_seconds[0][paths.rank[:, None], self._clipped[paths.rank]]
        ranks[:, self._numbers > self.window.most[:, None]] = np.inf
        return np.asarray(ranks)

    def _by_kind(self, each: FloatColumn) -> FloatColumn:
        """Seconds of the layers of each stage; `each` is of one layer, (path, stage, kind).

        Source: derived; which layers a stage holds depends on those before it, so the dearer kind
        is there as rarely as can be.
        """
        number, more = self._stages.T, each[..., 1] - each[..., 0]
        least = each[..., :1] * number
        if len(self.problem.kinds) == 1:
            return least
        fewest, most = self._experts
        return np.asarray(least + np.where(more[..., None] > 0, fewest, most) * more[..., None])

    @cached_property
    def _experts(self) -> tuple[IntMatrix, IntMatrix]:
        """Fewest and most mixture-of-experts layers in each stage; (stage, way)."""
        moe = np.concatenate([[0], np.cumsum(self.problem.job.model.moe_layers)])
        last, layers = len(moe) - 1, self._stages
        ends = np.stack([self.window.least, self.window.most])
        few, many = spread(self.problem, ends, longer_first=self.longer_first)
        begins = np.arange(last + 1)[:, None, None]
        may = (begins >= (np.cumsum(few) - few)) & (begins <= (np.cumsum(many) - many))
        may = may & (begins + layers <= last)
        inside = moe[np.minimum(begins + layers, last)] - moe[begins]
        fewest, most = np.where(may, inside, last + 1).min(0), np.where(may, inside, 0).max(0)
        return fewest.T, most.T

    @cached_property
    def _stages(self) -> IntMatrix:
        """Layers of every virtual stage; (way, stage)."""
        return spread(self.problem, self._numbers.T, longer_first=self.longer_first)

    @cached_property
    def _clipped(self) -> IntMatrix:
        return np.minimum(self._numbers, self.window.most[:, None])

    @cached_property
    def _of(self) -> PathSeconds:
        return PathSeconds(self.problem, self.paths)

    @cached_property
    def _fixed(self) -> FloatColumn:
        """Embedding, head and messages on every path, and the optimizer step at least."""
        problem = self.problem
        update = np.take_along_axis(problem.least_seconds[1], self._clipped, axis=1)
        return np.asarray(self._of.ends + self.paths.hops * problem.p2p + update.min(axis=1).max())

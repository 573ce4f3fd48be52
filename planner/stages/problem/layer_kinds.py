"""Kinds of layer among those of a stage, before it is known where the stage begins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainplan.costmodel.layouts import FloatColumn, IntColumn
from trainplan.costmodel.schedules.program import FloatMatrix
from trainplan.planner.stages.problem.chunks import stage_ends
from trainplan.planner.stages.problem.problem import StageProblem


@dataclass(frozen=True, slots=True)
class Kinds:
    """Mixture-of-experts layers among n consecutive layers of a stage: linear bounds in n.

    They follow from where the stage can begin: behind so many layers of the stages before it.
    """

    fewest_slope: FloatColumn
    """Of each stage."""
    fewest_start: FloatColumn
    most_slope: FloatColumn
    most_start: FloatColumn

    @classmethod
    def of(cls, problem: StageProblem, low: IntColumn, high: IntColumn) -> Kinds:
        """From the fewest and most layers of every rank."""
        if len(problem.kinds) == 1:
            nothing = np.zeros(problem.num_stages)
            return cls(nothing, nothing, nothing, nothing)
        stages = np.stack(stage_ends(problem.stage_of, low, high, alike=problem.alike))
        moe = problem.job.model.moe_layers
        first, last = np.minimum(np.cumsum(stages, axis=1) - stages, len(moe))
        bounds = [
            _linear_bounds(moe, a, b, n)
            for a, b, n in zip(first.tolist(), last.tolist(), stages[1].tolist(), strict=True)
        ]
        return cls(*np.array(bounds).T)

    def least(self, costs: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
        """Least sums of costs (row, stage, kind), linear in layers: slopes (row, stage), starts.

        Source: derived; where the second kind costs more there are as few of it as can be.
        """
        dense, more = costs[..., 0], costs[..., -1] - costs[..., 0]
        dearer = more > 0
        slope = np.where(dearer, self.fewest_slope, self.most_slope) * more
        start = np.where(dearer, self.fewest_start, self.most_start) * more
        return dense + slope, start


@dataclass(frozen=True, slots=True)
class StageSums:
    """Sums over the layers of stages, from below: `fixed` + sum over stages of `each` * layers."""

    each: FloatMatrix
    """Shape (row, stage)."""
    fixed: FloatColumn
    constants: FloatColumn
    """What of `fixed` no layer decides: rounding is a share of it."""

    @classmethod
    def of(cls, kinds: Kinds, costs: FloatColumn, fixed: FloatColumn) -> StageSums:
        """From costs of shape (row, stage, kind)."""
        each, start = kinds.least(costs)
        return cls(each, fixed + start.sum(axis=1), fixed)


@lru_cache(maxsize=65_536)
def _linear_bounds(
    moe_layers: tuple[bool, ...], first: int, last: int, most: int
) -> tuple[float, float, float, float]:
    """Slope and start of lines below the fewest and above the most MoE layers of n in a row.

    The row begins behind `first` to `last` layers.
    """
    moe = np.concatenate([[0], np.cumsum(moe_layers)])
    begin, n = np.arange(first, last + 1)[:, None], np.arange(min(most, len(moe) - 1) + 1)
    inside = moe[np.minimum(begin + n, len(moe) - 1)] - moe[begin]
    beyond = begin + n > len(moe) - 1
    low, high = (np.where(beyond, end, inside) for end in (len(moe), -1))
    low, high = low.min(axis=0), high.max(axis=0)
    real = high >= 0
    low, high, n = low[real], high[real], n[real]
    below, above = low[-1] / max(1, n[-1]), high[-1] / max(1, n[-1])
    return below, float((low - below * n).min()), above, float((high - above * n).max())

"""Kinds of layer among those of a stage, before it is known where the stage begins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainplan.costmodel.columns import FloatColumn, FloatMatrix, IntColumn
from trainplan.costmodel.pipeline import layers_before
from trainplan.planner.stages.columns import StageKinds
from trainplan.planner.stages.problem.chunks import stage_ends
from trainplan.planner.stages.problem.problem import StageProblem


@dataclass(frozen=True, slots=True)
class Kinds:
    """Fewest layers of each kind among n consecutive ones of a stage: lower bounds, linear in n.

    They follow from where the stage can begin: behind so many layers of the stages before it.
    """

    slope: StageKinds
    """Of each stage and kind, as `start`."""
    start: StageKinds

    @classmethod
    def of(cls, problem: StageProblem, low: IntColumn, high: IntColumn) -> Kinds:
        """From the fewest and most layers of every rank."""
        if len(problem.kinds) == 1:
            nothing = np.zeros((problem.num_stages, 1))
            return cls(nothing, nothing)
        stages = np.stack(stage_ends(problem.stage_of, low, high, alike=problem.alike))
        kinds = problem.job.model.kind_of_layer
        first, last = np.minimum(np.cumsum(stages, axis=1) - stages, len(kinds))
        bounds = [
            _linear_bounds(kinds, a, b, n)
            for a, b, n in zip(first.tolist(), last.tolist(), stages[1].tolist(), strict=True)
        ]
        slope, start = np.moveaxis(np.array(bounds), 1, 0)
        return cls(slope, start)

    def least(self, costs: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
        """Least sums of costs (row, stage, kind), linear in layers: slopes (row, stage), starts.

        Source: derived; every layer costs as much as the cheapest kind, and there are as few of the
        dearer ones as can be.
        """
        cheapest = costs.min(axis=-1)
        more = costs - cheapest[..., None]
        return cheapest + (self.slope * more).sum(axis=-1), (self.start * more).sum(axis=-1)


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
    kinds: tuple[int, ...], first: int, last: int, most: int
) -> tuple[FloatColumn, FloatColumn]:
    """Slope and start of lines below the fewest layers of each kind among n in a row; (kind,).

    The row begins behind `first` to `last` layers.
    """
    before, layers = layers_before(kinds), len(kinds)
    begin, n = np.arange(first, last + 1)[:, None], np.arange(min(most, layers) + 1)
    inside = before[np.minimum(begin + n, layers)] - before[begin]
    beyond = begin + n > layers
    fewest = np.where(beyond[..., None], layers + 1, inside).min(axis=0)
    real = ~beyond.all(axis=0)
    fewest, n = fewest[real], n[real]
    slope = fewest[-1] / max(1, n[-1])
    return slope, (fewest - slope * n[:, None]).min(axis=0)

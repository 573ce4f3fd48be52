"""How many layers each pipeline rank may hold in a step below some time.

Its virtual stages may hold any of them, one at least where they are not an end of the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from trainplan.costmodel.block_costs import usual_layers
from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    FloatMatrix,
    IntColumn,
    IntMatrix,
    RankRows,
)
from trainplan.costmodel.pipeline import layers_before
from trainplan.costmodel.timeline import Paths
from trainplan.planner.stages.columns import PathStageKinds, StageKinds
from trainplan.planner.stages.problem.chunks import (
    Windows,
    chord_of_min,
    longest_chunks,
    spread_least,
    stage_ends,
)
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


def bounds_of_stages(problem: StageProblem) -> tuple[IntColumn, IntColumn]:
    """Fewest and most layers of every virtual stage: only the first and the last may be empty."""
    least = np.ones(problem.num_stages, dtype=np.int64)
    least[[0, -1]] = 0
    return least, problem.job.model.num_hidden_layers - least.sum() + least


def windows(
    problem: StageProblem,
    paths: Paths,
    value_s: float,
    *,
    memory: bool = True,
    within: Windows[IntColumn] | None = None,
    in_time: bool = False,
) -> Windows[IntColumn] | None:
    """What no split outside can have: memory, or terms of the step below `value_s`; None if none.

    `within` is what is known already, maybe by the same paths and seconds: then all is `in_time`.

    Each rank's number is refused where some path is too long even if the other layers lie where
    they lengthen it least. Narrower windows of one rank leave fewer places to the layers of others,
    so this is repeated until nothing changes.
    """
    if problem.least_joins_seconds >= value_s:
        return None
    allowed, seconds = _by_work(problem, value_s), PathSeconds(problem, paths)
    if within:
        number = np.arange(allowed.shape[1])
        allowed &= (number >= within.least[:, None]) & (number <= within.most[:, None])
    while allowed.any(axis=1).all():
        low, high = _ends_of(allowed)
        kinds, number = Kinds.of(problem, low, high), _numbers(low, high)
        fits = np.ones(number.shape, dtype=bool)
        if not in_time:
            fits = _least_steps(seconds, kinds, low, high) < value_s
        if memory:
            needs = _Rows.of(problem, stage_needs(problem, kinds))
            fits &= (needs.alone(number) <= needs.rounding[:, None, None]).all(axis=0)
        narrower = np.zeros_like(allowed)
        narrower[np.nonzero(fits)[0], number[fits]] = True
        allowed, in_time = allowed & narrower, False
        if allowed.any(axis=1).all() and np.array_equal(_ends_of(allowed), (low, high)):
            found = Windows(low, high)
            return found if found.count(problem.job.model.num_hidden_layers) else None
    return None


def _least_steps(of: PathSeconds, kinds: Kinds, low: IntColumn, high: IntColumn) -> FloatColumn:
    """Seconds at least of a step with each of `_numbers` on a rank; (rank, number).

    Source: the longest path and what follows it; more layers may hide more traffic.
    """
    problem, paths = of.problem, of.paths
    rank, number = np.arange(len(low))[:, None], _numbers(low, high)
    behind, update = problem.least_seconds
    beyond = np.minimum.accumulate(behind[:, ::-1], axis=1)[:, ::-1]
    least = beyond[paths.rank, low[paths.rank]][:, None, None]
    tail = np.where(paths.rank[:, None, None] == rank, behind[rank, number], least)
    rates = _Rows.of(problem, of.rates(kinds, high))
    layers = problem.job.model.num_hidden_layers
    seconds = (rates.with_others(low, high, layers) + tail).max(axis=0)
    return np.asarray(seconds + update[rank, number])


def _numbers(low: IntColumn, high: IntColumn) -> IntMatrix:
    """Layers of each rank from its fewest on, as many as any rank has ways; its most at most."""
    more = np.arange(int((high - low).max()) + 1)
    return np.asarray(np.minimum(low[:, None] + more, high[:, None]))


def _by_work(problem: StageProblem, value_s: float) -> BoolColumn:
    """Numbers of layers that each rank can run in time, if the others run the rest; (rank, n)."""
    layers, vpp = problem.job.model.num_hidden_layers, problem.shape[1]
    if problem.num_stages == 1:
        return np.asarray(np.arange(layers + 1)[None, :] == layers)
    pair = problem.costs.pair
    ends = (problem.ends * pair).sum(axis=1)[problem.stage_of].sum(axis=1)
    seconds = value_s / problem.num_microbatches - ends
    kind, count = usual_layers(problem.job.model.kind_of_layer)
    own = pair[problem.stage_of[:, 0]]
    each = np.stack([own[:, kind], own[:, list(problem.kinds)].min(axis=1)])
    usual, cheapest = np.floor(np.maximum(seconds / each * (1 + ROUNDING), -1))
    most = np.minimum(np.minimum(usual + (layers - count), cheapest), layers).astype(np.int64)
    least = np.maximum(np.maximum(0, vpp - problem.may_be_empty), layers - (most.sum() - most))
    number = np.arange(layers + 1)
    return np.asarray((number >= least[:, None]) & (number <= most[:, None]))


def _ends_of(allowed: BoolColumn) -> tuple[IntColumn, IntColumn]:
    """First and last number of layers that each rank may hold."""
    return np.argmax(allowed, axis=1), allowed.shape[1] - 1 - np.argmax(allowed[:, ::-1], axis=1)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Sums over the layers of ranks, from below: `fixed` + sum over ranks of slope * layers."""

    slope: FloatColumn
    """Shape (row, rank)."""
    fixed: FloatColumn
    rounding: FloatColumn

    @classmethod
    def of(cls, problem: StageProblem, sums: StageSums) -> _Rows:
        """From sums over stages. Source: `spread_least`."""
        slope, spread = spread_least(sums.each, problem.stage_of, alike=problem.alike)
        return cls(slope, sums.fixed + spread.sum(axis=1), np.abs(sums.constants) * ROUNDING)

    def alone(self, number: IntMatrix) -> FloatColumn:
        """Rows of one rank with so many layers; (row, rank, number)."""
        return self.fixed[:, None, None] + self.slope[:, :, None] * number

    def with_others(self, low: IntColumn, high: IntColumn, layers: int) -> FloatColumn:
        """Every row with so many layers on one rank and the others elsewhere; (row, rank, number).

        Source: fractional knapsack; the other layers go where a row grows least. Without one rank
        they take as much as with it, or as with that rank full, less what is on it: whichever is
        more.
        """
        width, left = high - low, layers - _numbers(low, high) - (low.sum() - low)[:, None]
        order = np.argsort(self.slope, axis=1, kind="stable")
        slope = np.take_along_axis(self.slope, order, axis=1)
        each = np.repeat(slope.ravel(), width[order].ravel()).reshape(len(slope), -1)
        filled = np.concatenate([np.zeros((len(each), 1)), np.cumsum(each, axis=1)], axis=1)
        most = int(width.sum())
        full = filled[:, (left + width[:, None]).clip(0, most)] - (self.slope * width)[:, :, None]
        others = np.maximum(filled[:, left.clip(0, most)], full) + (self.slope @ low)[:, None, None]
        own = self.slope[:, :, None] * (_numbers(low, high) - low[:, None])
        possible = (left >= 0) & (left <= (most - width)[:, None])
        return np.where(possible, self.fixed[:, None, None] + own + others, np.inf)


ROUNDING = 1e-12
"""Share of a sum of bytes that rounding may add."""


@dataclass(frozen=True)
class PathSeconds:
    """Seconds of paths, as far as no window changes them."""

    problem: StageProblem
    paths: Paths

    def rates(self, kinds: Kinds, most: IntColumn) -> StageSums:
        """Seconds of paths on which every rank has so many layers at most.

        Of the layers of a stage, min(N, n) are recomputed, which is bounded by its chord.
        Source: the seconds of a path are linear in the layers of its stages, and `chord_of_min` is
        linear and below what is recomputed up to the most layers of a stage.
        """
        problem, paths, costs, fixed = self.problem, self.paths, self.layers, self.ends
        if problem.recomputed:
            held = np.empty((problem.num_stages, 1))
            held[problem.stage_of, 0] = most[:, None]
            longest = longest_chunks(problem.stage_of, held, alike=problem.alike)[:, 0]
            least = bounds_of_stages(problem)[0]
            slope, start = chord_of_min(np.array(problem.recomputed), least, longest)
            repeated = problem.costs.recompute_forward[:, list(problem.kinds)]
            cheapest = repeated.min(axis=1)
            if not problem.recomputes_all:
                repeated = np.repeat(cheapest[:, None], len(problem.kinds), axis=1)
            costs = costs + (paths.backward * slope)[:, :, None] * repeated
            fixed = fixed + paths.backward @ (start * cheapest)
        return StageSums.of(kinds, costs, fixed + paths.crossed @ problem.p2p)

    @cached_property
    def layers(self) -> PathStageKinds:
        """One layer on each stage, recomputation apart.

        Source: one more layer on a stage adds the seconds of a pass as often as the path crosses
        the stage in it.
        """
        ways = list(self.problem.kinds)
        return np.asarray(sum(c[:, :, None] * s[:, ways] for c, s in self._passes))

    @cached_property
    def ends(self) -> FloatColumn:
        """Embedding, head and MTP modules; of each path. Source: as `layers`."""
        ends = self.problem.ends
        return np.asarray(sum(c @ (ends * s).sum(axis=1) for c, s in self._passes))

    @property
    def _passes(self) -> list[tuple[IntMatrix, StageKinds]]:
        """How often paths cross each stage, and the seconds of one block there by kind."""
        one, paths = self.problem.costs, self.paths
        return [
            (paths.forward, one.forward),
            (paths.backward, one.backward),
            (paths.weight, one.weight),
        ]


def stage_needs(problem: StageProblem, kinds: Kinds) -> StageSums:
    """Bytes of ranks beyond what they may allocate."""
    needs = problem.memory_needs
    return StageSums.of(kinds, needs.costs, needs.constants)


def most_in_memory(problem: StageProblem) -> RankRows:
    """Layers of each rank, at most, that memory has room for; (rank, 1)."""
    least = np.maximum(0, problem.shape[1] - problem.may_be_empty)
    layers = problem.job.model.num_hidden_layers
    kinds = Kinds.of(problem, least, np.full(len(least), layers))
    needs = _Rows.of(problem, stage_needs(problem, kinds))
    number = np.tile(np.arange(layers + 1), (len(least), 1))
    fits = (needs.alone(number) <= needs.rounding[:, None, None]).all(axis=0)
    return np.asarray(fits.sum(axis=1)[:, None] - 1.0)

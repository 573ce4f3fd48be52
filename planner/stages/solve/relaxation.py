"""The best split of a layout if layers could be cut: a bound of all splits, and a split near it.

A linear program spreads the layers so that the longest known path is shortest; the schedule is run
with those parts of layers, and the longest path of that run is one more row. It ends where the run
takes no longer than the program says, or where no split is fast enough.
Source: Kelley, as `planner.stages.solve.best_split`; a path is there whatever its stages take.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainplan.costmodel.layouts import FloatColumn, IntColumn
from trainplan.costmodel.pipeline.stages import layers_before
from trainplan.costmodel.schedules.program import FloatMatrix
from trainplan.costmodel.schedules.timeline.clock import StageSeconds
from trainplan.costmodel.schedules.timeline.critical_path import Paths, critical_paths
from trainplan.planner.solvers.linear import Matrix
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.problem.chunks import stage_ends
from trainplan.planner.stages.problem.layer_kinds import Kinds
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.spread import balanced, stages_of
from trainplan.planner.stages.solve.windows import PathSeconds, Windows, stage_needs

MOST_PROGRAMS = 25
"""Linear programs of one layout. Source: measured, 4 to 20 are enough."""
FEW_PROGRAMS, CLEARLY = 8, 0.995
"""Programs where the best parts take no more than that share of the limit: no bound will reach it.
Source: measured."""
BETWEEN = np.array([0.0, 0.02, 0.1, 0.3, 1.0])[:, None]
"""Where the schedule is run, from the best parts so far to those of the program.
Source: in-out separation, Ben-Ameur and Neto, Networks 49, 2007; measured."""
NEAR = 1 - 1e-4
"""Share of the best parts' seconds that is near enough for a bound."""
ROUNDING = 1e-9
"""Share of the bytes of a rank that rounding may add."""
MOST_PATHS = 150
"""Paths of one program. Source: measured; more take longer than they help."""
SAFE = 1 - 1e-6
"""Share of the value of a program that holds whatever its solver rounds."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Layers that may be cut."""

    value_s: float
    """No split takes less, as `pipeline_s` of `RankLimits`."""
    layers: FloatColumn
    """Parts of layers of every virtual stage."""
    memory_decides: bool
    """Was the memory of ranks asked for?"""


def relaxed(problem: StageProblem, pool: PathPool, window: Windows, limit_s: float) -> Relaxed:
    """The best parts of layers within windows; more paths are known to the pool then.

    The schedule is run with the parts of the program, with the best parts so far, and between: far
    from both a program knows nothing. Memory is asked for where parts do not fit. It ends early
    where no split takes less than the limit.
    """
    program, value_s, best_s, memory = _Program(problem, window), 0.0, np.inf, False
    best = last = stages_of(problem, balanced(problem))[0].astype(np.float64)
    for number in range(MOST_PROGRAMS):
        if number >= FEW_PROGRAMS and best_s < limit_s * CLEARLY:
            break
        found = program.spread(pool.of(problem.pipeline), np.stack([best, last]), memory=memory)
        if found is None:
            break
        value_s, last = max(value_s, found[0]), found[1]
        if value_s >= min(limit_s, best_s * NEAR):
            break
        if not memory and program.is_too_full(last):
            memory, best_s, best = True, np.inf, last
            continue
        known, tried = len(pool.of(problem.pipeline).rank), best + BETWEEN * (last - best)
        seconds = _run(problem, pool, tried)
        first = int(np.argmin(seconds))
        if seconds[first] < best_s:
            best_s, best = float(seconds[first]), tried[first]
        if len(pool.of(problem.pipeline).rank) == known:
            break
    return Relaxed(value_s, best, memory)


@dataclass(frozen=True)
class _Program:
    """The linear programs of one layout within windows.

    Columns: the layers of every stage beyond its fewest, as shares of all that are left, and the
    seconds, as shares of the longest path without those.
    """

    problem: StageProblem
    window: Windows

    @cached_property
    def _kinds(self) -> Kinds:
        return Kinds.of(self.problem, self.window.least, self.window.most)

    @cached_property
    def _ends(self) -> tuple[IntColumn, IntColumn]:
        """Fewest and most layers of every virtual stage."""
        return stage_ends(
            self.problem.stage_of, self.window.least, self.window.most, alike=self.problem.alike
        )

    @cached_property
    def _needs(self) -> tuple[FloatMatrix, FloatColumn]:
        """Bytes of ranks beyond what they may allocate, as shares of that: each layer, and none."""
        needs = stage_needs(self.problem, self._kinds)
        some = np.isfinite(needs.constants)
        scale = np.abs(needs.constants[some]).clip(1.0)
        return needs.each[some] / scale[:, None], needs.fixed[some] / scale

    @cached_property
    def _around(self) -> tuple[FloatColumn, float]:
        """Seconds at least of the traffic of each rank, and of the update of all."""
        return self.problem.least_after(self.window.least, self.window.most)

    def is_too_full(self, layers: FloatColumn) -> bool:
        """Do some parts of layers need more memory than a rank has?"""
        each, fixed = self._needs
        return bool((fixed + each @ layers > ROUNDING).any())

    def spread(
        self, paths: Paths, near: FloatMatrix, *, memory: bool
    ) -> tuple[float, FloatColumn] | None:
        """Seconds and parts of layers whose longest path is shortest; None where none is found.

        Of many paths those count that are longest for the layers of some rows `near`.
        """
        least = self._ends[0]
        left = self.problem.job.model.num_hidden_layers - int(least.sum())
        rates = PathSeconds(self.problem, paths).rates(self._kinds, self.window.most)
        behind, update = self._around
        fixed, each = rates.fixed + rates.each @ least + behind[paths.rank] + update, rates.each
        longest = (fixed + (near - least) @ each.T).max(axis=0)
        some = np.argsort(-longest, kind="stable")[:MOST_PATHS]
        fixed, each, whole = fixed[some], each[some], float(fixed[some].max())
        if not left:
            return whole * SAFE, least.astype(np.float64)
        within, limits = self._within(left, memory=memory)
        rows = np.concatenate([left * each / whole, -np.ones((len(fixed), 1))], axis=1)
        cost, one = np.eye(1, len(least) + 1, len(least))[0], np.ones((1, len(least) + 1))
        found = Matrix(
            cost,
            np.concatenate([rows, np.pad(within, ((0, 0), (0, 1)))]),
            np.concatenate([-fixed / whole, limits]),
            one - cost,
        ).solve()
        if found is None:
            return None
        return float(found[-1]) * whole * SAFE, least + left * found[:-1].clip(0.0)

    def _within(self, left: int, *, memory: bool) -> tuple[FloatMatrix, FloatColumn]:
        """Rows and limits of the windows of stages and ranks, and of memory where it is asked."""
        (least, most), ranks = self._ends, range(self.problem.shape[0])
        own = np.array([self.problem.of_rank(rank) for rank in ranks], dtype=np.float64)
        rows = [np.eye(len(least)), own, -own]
        limits = [most - least, self.window.most - own @ least, own @ least - self.window.least]
        if memory:
            each, fixed = self._needs
            rows.append(each * left)
            limits.append((ROUNDING - fixed - each @ least) * left)
        return np.concatenate(rows), np.concatenate(limits) / left


def _run(problem: StageProblem, pool: PathPool, layers: FloatMatrix) -> FloatColumn:
    """Run the schedule with parts of layers: its longest paths are known from then on.

    `layers` has shape (row, stage). Seconds of each, as the program counts them.
    """
    one, kinds = problem.costs, list(problem.kinds)
    before, ends = layers_before(problem.job.model.kind_of_layer), np.cumsum(layers, axis=1)
    blocks = np.tile(problem.ends.astype(np.float64), (len(layers), 1, 1))
    for kind in kinds:
        reached = np.interp(ends, np.arange(len(before)), before[:, kind])
        blocks[:, :, kind] = np.diff(reached, axis=1, prepend=0.0)
    again = np.minimum(problem.recomputed, layers) * one.recompute_forward[:, kinds].mean(axis=1)
    seconds = StageSeconds(
        (blocks * one.forward).sum(axis=2),
        (blocks * one.backward).sum(axis=2) + again,
        (blocks * one.weight).sum(axis=2),
    )
    held = np.rint(layers[:, problem.stage_of].sum(axis=2)).astype(np.int64)
    behind, update = (each[np.arange(held.shape[1]), held] for each in problem.least_seconds)
    p2p, row = np.tile(problem.p2p, (len(layers), 1)), np.arange(len(layers))
    found = critical_paths(problem.schedule, problem.shape, seconds, p2p, behind)
    pool.add(problem.pipeline, found)
    lengths = found.seconds(seconds, p2p)[row, row]
    return np.asarray(lengths + behind[row, found.rank] + update.max(axis=1))


def whole_layers(parts: FloatColumn) -> IntColumn:
    """Whole layers near parts of them: every stage rounds down, the largest rests round up."""
    down = np.floor(parts + 1e-6).astype(np.int64)
    missing = round(float(parts.sum())) - int(down.sum())
    down[np.argsort(down - parts, kind="stable")[: max(0, missing)]] += 1
    return down

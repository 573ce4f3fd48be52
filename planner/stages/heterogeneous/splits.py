"""Splits of layouts in node groups, run on the clock: the best of them, and what they teach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.layouts.table import BoolColumn, FloatColumn, LayoutTable, objects
from trainplan.costmodel.machine.constants import Machine
from trainplan.costmodel.pipeline.node_groups import rank_groups
from trainplan.costmodel.schedules.program import IntMatrix
from trainplan.costmodel.spec.job import Job
from trainplan.costmodel.step.block_costs import usual_layers
from trainplan.costmodel.step.estimate import with_overhead, without_overhead
from trainplan.planner.solvers.layers.assignment import Counts
from trainplan.planner.solvers.layers.feasibility import limits
from trainplan.planner.solvers.layers.milp import solve
from trainplan.planner.space.grid import Space
from trainplan.planner.space.uneven import may_split
from trainplan.planner.stages.bounds.path_pool import PathPool
from trainplan.planner.stages.heterogeneous.bounds import InGroups, room
from trainplan.planner.stages.heterogeneous.problem import MixedRow, mixed_rows
from trainplan.planner.stages.heterogeneous.windows import Below, Pace, update_seconds
from trainplan.planner.stages.solve.windows import stages_of
from trainplan.planner.work.budget import Budget

TRIES = 4
"""Splits of one layout that the master proposes; beyond them its bound stays in the proof."""
MOST_STAGES = 1_000_000
"""Virtual stages of all splits of one layout that are listed together. Source: assumed."""
ROUNDS, LISTED_AT_ONCE = 12, 8
"""How often listed splits are run, and how many each time. Source: assumed, as `TRIES`."""
CLOSE = 1e-4
"""Share of a step below which a better split is not looked for; it stays in the proof. Source:
assumed; far less than the model knows of a step."""


@dataclass
class Splits:
    """What is known of splits; `best_s` only falls."""

    space: Space
    machine: Machine
    rules: Sequence[Rule]
    margin: float
    best_s: float
    found: dict[tuple[int, ...], tuple[float, LayoutTable]] = field(default_factory=dict)
    """The best layout of each tp, cp, pp and ep, and its seconds."""
    paths: PathPool = field(default_factory=PathPool)
    judged: int = 0
    """Splits whose schedule was run."""

    @property
    def job(self) -> Job:
        """What is planned."""
        return self.space.job

    def priced(self, table: LayoutTable) -> InGroups:
        """Layouts on the machine of each group."""
        return InGroups.of(self.job, self.machine, self.space.traits, table)

    def split(self, table: LayoutTable, order: Sequence[int], budget: Budget) -> float:
        """The best split of one layout; seconds that none is below."""
        row = self.rows(table, order)[0]
        free = self.free(row)
        self.attempt(row, self.balanced(row, order))
        if not free:
            return np.inf
        if not may_split(self.space.traits, table)[0]:  # no paths bound all splits
            return 0.0
        splits = self._listed(row, order)
        return self.solve(row, budget) if splits is None else self._close(row, splits, budget)

    def try_balanced(self, table: LayoutTable, order: Sequence[int]) -> int:
        """Run the balanced splits of some layouts; how many of them fit."""
        rows = self.rows(table, order) if len(table) else []
        return sum(self.attempt(row, self.balanced(row, order)) for row in rows)

    def polish(self, budget: Budget) -> None:
        """Other splits of the best layout found so far."""
        if not self.found:
            return
        table = min(self.found.values(), key=lambda pair: pair[0])[1]
        ranks = rank_groups(table.stages[0], int(table.schedule[0]), int(table.pp[0])).tolist()
        row = self.rows(table, tuple(dict.fromkeys(ranks)))[0]
        if self.free(row) and may_split(self.space.traits, table)[0]:
            self.solve(row, budget)

    def balanced(self, row: MixedRow, order: Sequence[int]) -> IntMatrix:
        """A split that uses the ranks alike, or the even one where that is asked; (1, stage)."""
        if not self.free(row):
            return np.array([row.even])
        priced, one = self.priced(row.one.table), np.array([0])
        usual = usual_layers(self.job)[0]
        most = room(priced, order, self.margin, np.inf, rows=one, kind=usual)
        return row.balanced(most[:, 0])

    def free(self, row: MixedRow) -> bool:
        """May the layers of a layout be split unevenly?"""
        return bool(self._allowed(row, np.array([_uneven(row.even)]))[0])

    def rows(self, table: LayoutTable, order: Sequence[int]) -> list[MixedRow]:
        """The layouts of a table, without their stages, the groups in an order."""
        traits = self.space.traits
        return mixed_rows(self.job, self.machine, traits, table, order, margin=self.margin)

    def solve(self, row: MixedRow, budget: Budget) -> float:
        """Seconds that no split of a layout is below; the best one is found on the way."""
        bound, refused = 0.0, list[Counts]()
        for _ in range(TRIES):
            if budget.seconds_left() <= 0:
                return bound
            problem = replace(row.filling(self.paths.of(row.one.pipeline)), refused=tuple(refused))
            filled = solve(problem, budget, without_overhead(self.machine, self.best_s))
            seconds = with_overhead(self.machine, np.array([filled.lower_bound]))
            bound = max(bound, float(seconds[0]))
            if filled.counts is None or bound * (1 + CLOSE) >= self.best_s:
                return bound
            refused.append(filled.counts)
            self.attempt(row, filled.counts.sum(axis=1)[None])
        return bound

    def _listed(self, row: MixedRow, order: Sequence[int]) -> IntMatrix | None:
        """All splits of a layout that have room and may win; None where they are too many."""
        if len(row.ways) > 1:
            return None
        priced, one, layers = (
            self.priced(row.one.table),
            np.array([0]),
            len(row.job.model.moe_layers),
        )
        below = Below(self.margin, self.best_s)
        pace = Pace.of(priced, order, one, priced.again(self.best_s), below)
        end = without_overhead(self.machine, self.best_s) - update_seconds(priced, order, one)
        found = pace.windows(end)
        if not found.hold(layers)[0]:
            return np.zeros((0, row.one.num_stages), dtype=np.int64)
        if found.ways(layers) * row.one.num_stages > MOST_STAGES:
            return None
        return stages_of(row.one, found.totals(layers))

    def _close(self, row: MixedRow, splits: IntMatrix, budget: Budget) -> float:
        """Seconds that none of some splits is below, those run that may win."""
        for _ in range(ROUNDS):
            seconds = self._lengths(row, splits)
            some = np.argsort(seconds, kind="stable")[:LISTED_AT_ONCE]
            some = some[seconds[some] < self.best_s]
            if not len(some) or budget.seconds_left() <= 0:
                break
            self.attempt(row, splits[some])
            splits = np.delete(splits, some, axis=0)
        return float(self._lengths(row, splits).min(initial=np.inf))

    def _lengths(self, row: MixedRow, splits: IntMatrix) -> FloatColumn:
        """Seconds of splits at least, by the paths known; infinite where memory refuses."""
        problem = row.filling(self.paths.of(row.one.pipeline))
        rows = problem.costs[:, :, 0] @ splits.T + problem.constants[:, None]
        groups = np.unique(problem.group).tolist()
        total = np.sum([rows[problem.group == one].max(axis=0) for one in groups], axis=0)
        used = problem.needs[:, :, 0] @ splits.T
        fits = (used <= limits(problem)[:, None]).all(axis=0) & (splits >= problem.least).all(
            axis=1
        )
        return np.where(fits, with_overhead(self.machine, total), np.inf)

    def attempt(self, row: MixedRow, layers: IntMatrix) -> bool:
        """Run the schedules of some splits, note their paths and the best; does it fit?"""
        judged = row.judge(layers)
        self.paths.add(row.one.pipeline, judged.paths)
        self.judged += len(layers)
        best = int(np.argmin(np.where(judged.fits, judged.step_time_s, np.inf)))
        seconds, layers = float(judged.step_time_s[best]), layers[best][None]
        key = tuple(int(getattr(row.one.table, name)[0]) for name in ("tp", "cp", "pp", "ep"))
        known = self.found.get(key, (np.inf, None))[0]
        if judged.fits[best] and seconds < known and self._allowed(row, layers)[0]:
            stages = objects([row.stages(tuple(layers[0].tolist()))])
            self.found[key] = seconds, row.one.table.replaced(stages=stages)
            self.best_s = min(self.best_s, seconds)
        return bool(judged.fits[best])

    def _allowed(self, row: MixedRow, layers: IntMatrix) -> BoolColumn:
        """Does a split break no rule?"""
        stages = objects([row.stages(tuple(split)) for split in layers.tolist()])
        table = row.one.table.replaced(stages=stages)
        return np.asarray(~np.any([rule.broken(self.job, table) for rule in self.rules], axis=0))


def _uneven(layers: tuple[int, ...]) -> tuple[int, ...]:
    """A split like the even one, but for one layer."""
    longest = int(np.argmax(layers))
    other = (longest + 1) % len(layers)
    step = np.zeros(len(layers), dtype=np.int64)
    step[longest], step[other] = -1, 1
    return tuple((np.array(layers) + step).tolist())

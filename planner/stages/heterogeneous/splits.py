"""Splits of layouts in node groups, run on the clock: the best of them, and what they teach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from trainplan.costmodel.blocks.candidates import Candidates
from trainplan.costmodel.layouts import BoolColumn, FloatColumn, LayoutTable, Rule
from trainplan.costmodel.layouts.table import objects
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.pipeline.node_groups import rank_groups
from trainplan.costmodel.schedules.program import IntMatrix
from trainplan.costmodel.spec import Job
from trainplan.costmodel.step.block_costs import usual_layers
from trainplan.costmodel.step.estimate import with_overhead, without_overhead
from trainplan.planner.solvers.layers.assignment import Counts, limits
from trainplan.planner.solvers.layers.milp import solve
from trainplan.planner.space import Space
from trainplan.planner.space.offload import Fractions, fractions_of, in_parts, with_fraction
from trainplan.planner.space.policies import allows_any_split
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.heterogeneous.bounds import Grouped, layer_capacity
from trainplan.planner.stages.heterogeneous.problem import (
    HeterogeneousProblem,
    heterogeneous_problems,
)
from trainplan.planner.stages.heterogeneous.windows import Pace, SplitLimits, update_seconds
from trainplan.planner.stages.solve.windows import stages_of
from trainplan.planner.work import Budget

MOST_PROPOSALS = 4
"""Splits of one layout that the master proposes; beyond them its bound stays in the proof."""
MOST_STAGES = 1_000_000
"""Virtual stages of all splits of one layout that are listed together. Source: assumed."""
ROUNDS, LISTED_AT_ONCE = 12, 8
"""How often listed splits are run, and how many each time. Source: assumed, as `MOST_PROPOSALS`."""
CLOSE = 1e-4
"""Share of a step below which a better split is not looked for; it stays in the proof. Source:
assumed; far less than the model knows of a step."""


@dataclass
class HeterogeneousSplits:
    """What is known of splits; `incumbent_s` only falls."""

    space: Space
    machine: Machine
    rules: Sequence[Rule]
    margin: float
    incumbent_s: float
    found: dict[tuple[int, ...], tuple[float, LayoutTable]] = field(default_factory=dict)
    """The best layout of each tp, cp, pp and ep, and its seconds."""
    paths: PathPool = field(default_factory=PathPool)
    num_simulated: int = 0
    """Splits whose schedule was run."""

    @property
    def job(self) -> Job:
        """What is planned."""
        return self.space.job

    def priced(self, table: LayoutTable) -> Grouped:
        """Layouts on the machine of each group."""
        return Grouped.of(self._candidates(table), self.ranges)

    @cached_property
    def ranges(self) -> tuple[Fractions, ...]:
        """Of the optimizer, that may be offloaded: a table holds the least of its own that may."""
        return in_parts(fractions_of(self.space.traits, self.rules))

    def _candidates(self, table: LayoutTable) -> Candidates:
        return Candidates(self.job, self.machine, self.space.traits, table)

    def split(self, table: LayoutTable, order: Sequence[int], budget: Budget) -> float:
        """The best split of one layout; seconds that none is below."""
        problem = self.rows(table, order)[0]
        free = self.free(problem)
        self.attempt(problem, self.balanced(problem, order))
        if not free:
            return np.inf
        if not allows_any_split(self.space.traits, table)[0]:  # no paths bound all splits
            return 0.0
        splits = self._listed(problem, order)
        return (
            self.solve(problem, budget)
            if splits is None
            else self._close_gap(problem, splits, budget)
        )

    def try_balanced(self, table: LayoutTable, order: Sequence[int]) -> int:
        """Run the balanced splits of some layouts; how many of them fit."""
        rows = self.rows(table, order) if len(table) else []
        return sum(self.attempt(problem, self.balanced(problem, order)) for problem in rows)

    def polish(self, budget: Budget) -> None:
        """Other splits of the best layout found so far."""
        if not self.found:
            return
        table = min(self.found.values(), key=lambda pair: pair[0])[1]
        ranks = rank_groups(table.stages[0], int(table.schedule[0]), int(table.pp[0])).tolist()
        problem = self.rows(table, tuple(dict.fromkeys(ranks)))[0]
        if self.free(problem) and allows_any_split(self.space.traits, table)[0]:
            self.solve(problem, budget)

    def balanced(self, problem: HeterogeneousProblem, order: Sequence[int]) -> IntMatrix:
        """A split that uses the ranks alike, or the even one where that is asked; (1, stage)."""
        if not self.free(problem):
            return np.array([problem.even])
        priced, one = self.priced(problem.one.table), np.array([0])
        usual = usual_layers(self.job)[0]
        most = layer_capacity(priced, order, self.margin, np.inf, rows=one, kind=usual)
        return problem.balanced(most[:, 0])

    def free(self, problem: HeterogeneousProblem) -> bool:
        """May the layers of a layout be split unevenly?"""
        return bool(self._allowed(problem, np.array([_uneven(problem.even)]))[0])

    def rows(self, table: LayoutTable, order: Sequence[int]) -> list[HeterogeneousProblem]:
        """The layouts of a table, without their stages, the groups in an order."""
        return heterogeneous_problems(
            self._candidates(table), order, margin=self.margin, ranges=self.ranges
        )

    def solve(self, problem: HeterogeneousProblem, budget: Budget) -> float:
        """Seconds that no split of a layout is below; the best one is found on the way."""
        bound, refused = 0.0, list[Counts]()
        for _ in range(MOST_PROPOSALS):
            if budget.seconds_left() <= 0:
                return bound
            assignment_problem = replace(
                problem.assignment(self.paths.of(problem.one.pipeline)), refused=tuple(refused)
            )
            assigned = solve(
                assignment_problem, budget, without_overhead(self.machine, self.incumbent_s)
            )
            seconds = with_overhead(self.machine, np.array([assigned.lower_bound]))
            bound = max(bound, float(seconds[0]))
            if assigned.counts is None or bound * (1 + CLOSE) >= self.incumbent_s:
                return bound
            refused.append(assigned.counts)
            self.attempt(problem, assigned.counts.sum(axis=1)[None])
        return bound

    def _listed(self, problem: HeterogeneousProblem, order: Sequence[int]) -> IntMatrix | None:
        """All splits of a layout that have room and may win; None where they are too many."""
        if len(problem.ways) > 1:
            return None
        priced, one, layers = (
            self.priced(problem.one.table),
            np.array([0]),
            len(problem.job.model.moe_layers),
        )
        split_limits = SplitLimits(self.margin, self.incumbent_s)
        pace = Pace.of(priced, order, one, priced.recomputed_share(self.incumbent_s), split_limits)
        end = without_overhead(self.machine, self.incumbent_s) - update_seconds(priced, order, one)
        found = pace.windows(end)
        if not found.hold(layers)[0]:
            return np.zeros((0, problem.one.num_stages), dtype=np.int64)
        if found.ways(layers) * problem.one.num_stages > MOST_STAGES:
            return None
        return stages_of(problem.one, found.totals(layers))

    def _close_gap(self, problem: HeterogeneousProblem, splits: IntMatrix, budget: Budget) -> float:
        """Seconds that none of some splits is below, those run that may win."""
        for _ in range(ROUNDS):
            seconds = self._lengths(problem, splits)
            some = np.argsort(seconds, kind="stable")[:LISTED_AT_ONCE]
            some = some[seconds[some] < self.incumbent_s]
            if not len(some) or budget.seconds_left() <= 0:
                break
            self.attempt(problem, splits[some])
            splits = np.delete(splits, some, axis=0)
        return float(self._lengths(problem, splits).min(initial=np.inf))

    def _lengths(self, problem: HeterogeneousProblem, splits: IntMatrix) -> FloatColumn:
        """Seconds of splits at least, by the paths known; infinite where memory refuses."""
        assignment_problem = problem.assignment(self.paths.of(problem.one.pipeline))
        rows = assignment_problem.costs[:, :, 0] @ splits.T + assignment_problem.constants[:, None]
        groups = np.unique(assignment_problem.group).tolist()
        total = np.sum(
            [rows[assignment_problem.group == one].max(axis=0) for one in groups], axis=0
        )
        used = assignment_problem.needs[:, :, 0] @ splits.T
        fits = (used <= limits(assignment_problem)[:, None]).all(axis=0) & (
            splits >= assignment_problem.least
        ).all(axis=1)
        return np.where(fits, with_overhead(self.machine, total), np.inf)

    def attempt(self, problem: HeterogeneousProblem, layers: IntMatrix) -> bool:
        """Run the schedules of some splits, note their paths and the best; does it fit?"""
        simulated = problem.simulate(layers)
        self.paths.add(problem.one.pipeline, simulated.paths)
        self.num_simulated += len(layers)
        best = int(np.argmin(np.where(simulated.fits, simulated.step_time_s, np.inf)))
        seconds, layers = float(simulated.step_time_s[best]), layers[best][None]
        key = tuple(int(getattr(problem.one.table, name)[0]) for name in ("tp", "cp", "pp", "ep"))
        known = self.found.get(key, (np.inf, None))[0]
        if simulated.fits[best] and seconds < known and self._allowed(problem, layers)[0]:
            stages = objects([problem.stages(tuple(layers[0].tolist()))])
            row = with_fraction(problem.one.table, float(simulated.offload[best]))
            self.found[key] = seconds, row.replaced(stages=stages)
            self.incumbent_s = min(self.incumbent_s, seconds)
        return bool(simulated.fits[best])

    def _allowed(self, problem: HeterogeneousProblem, layers: IntMatrix) -> BoolColumn:
        """Does a split break no rule?"""
        stages = objects([problem.stages(tuple(split)) for split in layers.tolist()])
        table = problem.one.table.replaced(stages=stages)
        return np.asarray(~np.any([rule.broken(self.job, table) for rule in self.rules], axis=0))


def _uneven(layers: tuple[int, ...]) -> tuple[int, ...]:
    """A split like the even one, but for one layer."""
    longest = int(np.argmax(layers))
    other = (longest + 1) % len(layers)
    step = np.zeros(len(layers), dtype=np.int64)
    step[longest], step[other] = -1, 1
    return tuple((np.array(layers) + step).tolist())

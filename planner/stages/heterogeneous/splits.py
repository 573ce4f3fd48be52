"""Splits of layouts in node groups, run on the clock: the best of them, and what they teach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from trainplan.costmodel.blocks.candidates import Candidates
from trainplan.costmodel.layouts import BoolColumn, LayoutTable, Rule
from trainplan.costmodel.layouts.table import objects
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.pipeline.node_groups import rank_groups
from trainplan.costmodel.schedules.program import IntMatrix
from trainplan.costmodel.spec import Job
from trainplan.costmodel.step.block_costs import usual_layers
from trainplan.planner.space import Space
from trainplan.planner.space.offload import Fractions, fractions_of, in_parts, with_fraction
from trainplan.planner.space.policies import allows_any_split
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.heterogeneous.bounds import Grouped, layer_capacity
from trainplan.planner.stages.problem.of_layouts import problems_in_groups
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.best_split import best_split
from trainplan.planner.stages.solve.listed import NOTHING_KNOWN, SplitResult, with_simulated
from trainplan.planner.stages.solve.polish import polished
from trainplan.planner.stages.solve.windows import balanced, stages_of
from trainplan.planner.work import Budget


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
        found = best_split(problem, self.paths, self.incumbent_s, budget)
        self._note(problem, found)
        return found.lower_bound_s

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
            layers = np.array([[stage.layers for stage in table.stages[0]]])
            self._note(problem, polished(problem, self.paths, layers, budget))

    def balanced(self, problem: StageProblem, order: Sequence[int]) -> IntMatrix:
        """A split that uses the ranks alike, or the even one where that is asked; (1, stage)."""
        if not self.free(problem):
            return np.array([problem.even])
        priced, one = self.priced(problem.table), np.array([0])
        usual = usual_layers(self.job)[0]
        most = layer_capacity(priced, order, self.margin, np.inf, rows=one, kind=usual)
        return stages_of(problem, balanced(problem, most[:, 0]))[:1]

    def free(self, problem: StageProblem) -> bool:
        """May the layers of a layout be split unevenly?"""
        return bool(self._allowed(problem, np.array([_uneven(problem.even)]))[0])

    def rows(self, table: LayoutTable, order: Sequence[int]) -> list[StageProblem]:
        """The layouts of a table, without their stages, the groups in an order."""
        memory = [one.memory_bytes * (1 - self.margin) for one in self.machine.groups]
        return problems_in_groups(self._candidates(table), order, memory, self.ranges, alike=True)

    def attempt(self, problem: StageProblem, layers: IntMatrix) -> bool:
        """Run the schedules of some splits, note their paths and the best; does it fit?"""
        found = with_simulated(problem, self.paths, layers, NOTHING_KNOWN)
        self._note(problem, found)
        return found.layers is not None

    def _note(self, problem: StageProblem, found: SplitResult) -> None:
        """Take note of a split, where no rule refuses it and it is the best of its degrees."""
        self.num_simulated += found.num_simulated
        key = tuple(int(getattr(problem.table, name)[0]) for name in ("tp", "cp", "pp", "ep"))
        known = self.found.get(key, (np.inf, None))[0]
        if found.layers is None or found.step_time_s >= known:
            return
        if self._allowed(problem, np.array([found.layers]))[0]:
            row = with_fraction(problem.table, found.offload)
            stages = objects([problem.stages(found.layers)])
            self.found[key] = found.step_time_s, row.replaced(stages=stages)
            self.incumbent_s = min(self.incumbent_s, found.step_time_s)

    def _allowed(self, problem: StageProblem, layers: IntMatrix) -> BoolColumn:
        """Does a split break no rule?"""
        stages = objects([problem.stages(split) for split in layers.tolist()])
        table = problem.table.replaced(stages=stages)
        return np.asarray(~np.any([rule.broken(self.job, table) for rule in self.rules], axis=0))


def _uneven(layers: tuple[int, ...]) -> tuple[int, ...]:
    """A split like the even one, but for one layer."""
    longest = int(np.argmax(layers))
    other = (longest + 1) % len(layers)
    step = np.zeros(len(layers), dtype=np.int64)
    step[longest], step[other] = -1, 1
    return tuple((np.array(layers) + step).tolist())

"""What the second half of a search asks of its workers: bounds of many layouts, splits of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from trainplan.costmodel.blocks.candidates import Context
from trainplan.costmodel.layouts import FloatColumn, LayoutTable
from trainplan.costmodel.layouts.table import FULL, UNIFORM
from trainplan.costmodel.step import Priced, price
from trainplan.costmodel.step.block_costs import BlockCosts, block_costs
from trainplan.costmodel.step.estimate import without_overhead
from trainplan.planner.stages.bounds.layer_capacity import RankLimits
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.bounds.shapes import split_bound, states_bound
from trainplan.planner.stages.problem.problem import StageProblem, stage_problems
from trainplan.planner.stages.solve.best_split import SplitResult, best_split
from trainplan.planner.tree.memory_bounds import time_minimal
from trainplan.planner.work import Deadline


@dataclass(frozen=True, slots=True)
class SplitContext(Context):
    """What all layouts are asked for."""

    memory_bytes: float
    """Device memory that a rank may use."""

    def rows(self, table: LayoutTable) -> list[StageProblem]:
        """The layouts of a table, one by one."""
        return stage_problems(self.with_table(table), self.memory_bytes)

    def costs(self, table: LayoutTable) -> tuple[Priced, BlockCosts]:
        """Layouts on the machine, evenly split, and their blocks."""
        priced = price(self.with_table(table))
        return priced, block_costs(priced)

    def offloaded(self, table: LayoutTable) -> tuple[Priced, BlockCosts]:
        """The least seconds and bytes of layouts, whatever they offload.

        The largest share leaves fewest bytes, and its seconds are left out: no share is below both.
        """
        most = max(self.traits.offloading.optimizer_fractions)
        priced, costs = self.costs(table.replaced(offload_optimizer=np.full(len(table), most)))
        return priced, replace(costs, offload=np.zeros_like(costs.offload))

    def of_classes(self, min_memory: LayoutTable) -> tuple[Priced, BlockCosts]:
        """The least seconds and bytes of classes of policies, given by what keeps least.

        Source: derived; as `memory_bounds.ends`.
        Of some layers recomputed together the input of the first is kept, of layers
        recomputed one by one that of each.
        """
        priced, costs = self.offloaded(time_minimal(min_memory))
        uniform = (min_memory.recompute == FULL) & (min_memory.recompute_method == UNIFORM)
        block = (min_memory.recompute == FULL) & ~uniform
        kept = np.where(block, np.minimum(costs.saved_bytes, costs.input_bytes), costs.saved_bytes)
        partly = np.flatnonzero(min_memory.recompute != FULL)
        if len(partly):
            kept[:, partly] = self.offloaded(min_memory.take(partly))[1].saved_bytes
        inputs = costs.input_bytes / np.where(uniform, min_memory.recompute_num_layers, 1)
        return priced, replace(costs, saved_bytes=kept, input_bytes=inputs)

    def states_only_bound(
        self, priced: Priced, costs: BlockCosts, incumbent_s: float
    ) -> FloatColumn:
        """Bound of every row, by the seconds of all ranks together and their states alone.

        What `bound` adds, waiting and activations, is never less than nothing.
        """
        return states_bound(priced, costs, limits=self._limits(incumbent_s))

    def bound(
        self, priced: Priced, costs: BlockCosts, incumbent_s: float, pool: PathPool
    ) -> FloatColumn:
        """Bound of every row; infinite where no split fits that is faster than the best."""
        return split_bound(priced, costs, limits=self._limits(incumbent_s), pool=pool)

    def _limits(self, incumbent_s: float) -> RankLimits:
        return RankLimits(self.memory_bytes, without_overhead(self.machine, incumbent_s))


@dataclass(frozen=True, slots=True)
class Bound(ABC):
    """Seconds that no split of some layouts goes below, as far as it matters below the best."""

    of: SplitContext
    table: LayoutTable
    incumbent_s: float
    pool: PathPool
    """What is known of pipelines."""
    fewest_rows: ClassVar[int] = 2048
    """Of a table worth a worker of its own: to price a few takes as long as to price hundreds."""

    def __call__(self, deadline: Deadline) -> tuple[FloatColumn, PathPool]:
        """Bound of every row, and what is known of pipelines then."""
        return self.of.bound(*self.costs(), self.incumbent_s, self.pool), self.pool

    @abstractmethod
    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take at least."""


class BoundSkeletons(Bound):
    """Whatever they recompute and offload; cheap, for most hold more states than there is room."""

    def __call__(self, deadline: Deadline) -> tuple[FloatColumn, PathPool]:
        """Bound of every row, and what was known of pipelines."""
        return self.of.states_only_bound(*self.costs(), self.incumbent_s), self.pool

    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take at least."""
        return self.of.offloaded(self.table)


class BoundClasses(Bound):
    """Classes of policies, each given by what keeps least, whatever they offload."""

    fewest_rows = 128

    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take at least."""
        return self.of.of_classes(self.table)


class BoundPolicies(Bound):
    """Whatever they offload."""

    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take at least."""
        return self.of.offloaded(self.table)


class BoundLayouts(Bound):
    """As they are."""

    fewest_rows = 128

    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take."""
        return self.of.costs(self.table)


@dataclass(frozen=True, slots=True)
class BestSplit:
    """The fastest split of one layout that is faster than the best."""

    problem: StageProblem
    incumbent_s: float
    pool: PathPool
    """Paths known for its pipeline."""
    target_bound_s: float
    """It ends early where no split is faster than that."""

    def __call__(self, deadline: Deadline) -> tuple[SplitResult, PathPool]:
        """What is known of the split, and the paths that are known afterwards."""
        if deadline.seconds_left() <= 0:
            return SplitResult(None, np.inf, 0.0, 0, memory_decides=True), self.pool
        return best_split(
            self.problem, self.pool, self.incumbent_s, deadline, self.target_bound_s
        ), self.pool


@dataclass(frozen=True, slots=True)
class BestSplits:
    """Some of them, handed over together: what they share is sent once."""

    tasks: tuple[BestSplit, ...]

    def __call__(self, deadline: Deadline) -> list[tuple[SplitResult, PathPool]]:
        """What is known of each, in order."""
        return [task(deadline) for task in self.tasks]

"""What the second half of a search asks of its workers: bounds of many layouts, splits of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from costmodel.block_costs import BlockCosts, block_costs
from costmodel.estimate import Priced, price, without_overhead
from costmodel.machine import Machine
from costmodel.runtimes.base import RuntimeTraits
from costmodel.spec.job import Job
from costmodel.table import FloatColumn, LayoutTable
from planner.budget import Deadline
from planner.path_pool import PathPool
from planner.shape_bounds import split_bound
from planner.split import Split, best_split
from planner.split_memory import Limits
from planner.split_problem import Splittable, splittables


@dataclass(frozen=True, slots=True)
class Question:
    """What all layouts are asked for."""

    job: Job
    machine: Machine
    traits: RuntimeTraits
    memory_bytes: float
    """Device memory that a rank may use."""

    def rows(self, table: LayoutTable) -> list[Splittable]:
        """The layouts of a table, one by one."""
        return splittables(self.job, self.machine, self.traits, table, self.memory_bytes)

    def costs(self, table: LayoutTable) -> tuple[Priced, BlockCosts]:
        """Layouts on the machine, evenly split, and their blocks."""
        priced = price(self.job, self.machine, self.traits, table)
        return priced, block_costs(self.job, self.machine, self.traits, priced)

    def offloaded(self, table: LayoutTable) -> tuple[Priced, BlockCosts]:
        """The least seconds and bytes of layouts, whatever they offload."""
        most = max(self.traits.offload_fractions)
        priced, costs = self.costs(table.replaced(offload_optimizer=np.full(len(table), most)))
        return priced, replace(costs, offload=np.zeros_like(costs.offload))

    def leanest(self, table: LayoutTable) -> tuple[Priced, BlockCosts]:
        """The least seconds and bytes of skeletons, whatever they recompute and offload."""
        priced, costs = self.offloaded(table)
        kept, inputs = np.zeros_like(costs.kept_bytes), np.zeros_like(costs.input_bytes)
        return priced, replace(costs, kept_bytes=kept, input_bytes=inputs)

    def bound(
        self, priced: Priced, costs: BlockCosts, best_s: float, pool: PathPool
    ) -> FloatColumn:
        """Bound of every row; infinite where no split fits that is faster than the best."""
        limits = Limits(self.memory_bytes, without_overhead(self.machine, best_s))
        asked = self.job, self.machine, self.traits, priced, costs
        return split_bound(*asked, limits=limits, pool=pool)


@dataclass(frozen=True, slots=True)
class Bound(ABC):
    """Seconds that no split of some layouts goes below, as far as it matters below the best."""

    of: Question
    table: LayoutTable
    best_s: float
    pool: PathPool
    """What is known of pipelines."""

    def __call__(self, deadline: Deadline) -> tuple[FloatColumn, PathPool]:
        """Bound of every row, and what is known of pipelines then."""
        return self.of.bound(*self.costs(), self.best_s, self.pool), self.pool

    @abstractmethod
    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take at least."""


class BoundSkeletons(Bound):
    """Whatever they recompute and offload."""

    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take at least."""
        return self.of.leanest(self.table)


class BoundPolicies(Bound):
    """Whatever they offload."""

    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take at least."""
        return self.of.offloaded(self.table)


class BoundLayouts(Bound):
    """As they are."""

    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take."""
        return self.of.costs(self.table)


@dataclass(frozen=True, slots=True)
class BestSplit:
    """The fastest split of one layout that is faster than the best."""

    row: Splittable
    best_s: float
    pool: PathPool
    """Paths known for its pipeline."""

    def __call__(self, deadline: Deadline) -> tuple[Split, PathPool]:
        """What is known of the split, and the paths that are known afterwards."""
        if deadline.seconds_left() <= 0:
            return Split(None, np.inf, 0.0, 0, memory_decides=True), self.pool
        return best_split(self.row, self.pool, self.best_s, deadline), self.pool

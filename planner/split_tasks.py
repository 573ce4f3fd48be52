"""What the second half of a search asks of its workers: bounds of many layouts, splits of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from costmodel.block_costs import BlockCosts, block_costs
from costmodel.critical import Paths
from costmodel.estimate import Priced, price, without_overhead
from costmodel.machine import Machine
from costmodel.runtimes.base import RuntimeTraits
from costmodel.spec.job import Job
from costmodel.table import FloatColumn, LayoutTable
from planner.budget import Deadline
from planner.shape_bounds import split_bound
from planner.split import PathPool, Split, best_split
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

    def bound(self, priced: Priced, costs: BlockCosts, best_s: float) -> FloatColumn:
        """Bound of every row; infinite where no split fits that is faster than the best."""
        limits = Limits(self.memory_bytes, without_overhead(self.machine, best_s))
        return split_bound(self.job, self.machine, self.traits, priced, costs, limits=limits)


@dataclass(frozen=True, slots=True)
class Bound(ABC):
    """Seconds that no split of some layouts goes below, as far as it matters below the best."""

    of: Question
    table: LayoutTable
    best_s: float

    @abstractmethod
    def __call__(self, deadline: Deadline) -> FloatColumn:
        """Bound of every row."""


class BoundSkeletons(Bound):
    """Whatever they recompute and offload."""

    def __call__(self, deadline: Deadline) -> FloatColumn:
        """Bound of every row."""
        return self.of.bound(*self.of.leanest(self.table), self.best_s)


class BoundPolicies(Bound):
    """Whatever they offload."""

    def __call__(self, deadline: Deadline) -> FloatColumn:
        """Bound of every row."""
        return self.of.bound(*self.of.offloaded(self.table), self.best_s)


class BoundLayouts(Bound):
    """As they are."""

    def __call__(self, deadline: Deadline) -> FloatColumn:
        """Bound of every row."""
        return self.of.bound(*self.of.costs(self.table), self.best_s)


@dataclass(frozen=True, slots=True)
class BestSplit:
    """The fastest split of one layout that is faster than the best."""

    row: Splittable
    paths: Paths | None
    """Paths known for its shape."""
    best_s: float

    def __call__(self, deadline: Deadline) -> tuple[Split, Paths | None]:
        """What is known of the split, and the paths that are known afterwards."""
        if deadline.seconds_left() <= 0:
            return Split(None, np.inf, 0.0, 0, memory_decides=True), self.paths
        pool = PathPool()
        if self.paths is not None:
            pool.add(self.row, self.paths)
        return best_split(self.row, pool, self.best_s, deadline), pool.of(self.row)

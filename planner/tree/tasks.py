"""What the first half of a search asks of its workers: the prices of many layouts."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.memory import RESERVE_FACTOR, MemoryTable
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import Priced, price, step_seconds
from trainplan.planner.policies import (
    DRIVES_FULL,
    HOST_FULL,
    NO_ROOM,
    Fractions,
    least_offload,
    with_fraction,
)
from trainplan.planner.space import DRIVE_SPACE, HOST_MEMORY, MEMORY
from trainplan.planner.tree.result import Objective
from trainplan.planner.work import AffinityPartition, Budget, Deadline, Task, Workers

ADAPTING = np.array([SCHEDULES[name].adapts for name in SCHEDULE_NAMES])
"""Does the order of each schedule depend on the durations of its passes?"""
FEWEST_ROWS = 1024
"""Worth a worker of its own: to price a few takes as long as to price hundreds."""


@dataclass(frozen=True, slots=True)
class PricingContext(Context):
    """What all layouts are asked for."""

    objective: Objective
    memory_bytes: float
    """Device memory that a rank may use."""

    def price(self, table: LayoutTable) -> Priced:
        """Layouts on the machine, evenly split."""
        return price(self.with_table(table))


@dataclass(frozen=True, slots=True)
class SkeletonPrices:
    """Columns of some skeletons."""

    bound: FloatColumn
    """Objective that no policy goes below."""
    fits: BoolColumn
    """With no policy."""
    least: FloatColumn
    """Bytes of the fullest rank with the memory-minimal policy, at least."""


@dataclass(frozen=True, slots=True)
class PriceSkeletons:
    """Skeletons, without recomputation and offload."""

    context: PricingContext
    table: LayoutTable
    most_offload: FloatColumn
    """Largest fraction of the optimizer that each may offload."""

    def __call__(self, deadline: Deadline) -> SkeletonPrices:
        """Their columns."""
        priced, context = self.context.price(self.table), self.context
        fits = priced.memory.fits(context.memory_bytes)
        least = priced.memory.least_used(self.most_offload)
        return SkeletonPrices(context.objective.bound(priced), fits, least)


@dataclass(frozen=True, slots=True)
class PriceClasses:
    """Classes of policies, each by what takes least time and by what keeps least.

    Source: derived. The more layers or modules are recomputed, the fewer activations are kept and
    the longer the step; what a layer needs for a moment is least where least is recomputed.
    """

    context: PricingContext
    fast: LayoutTable
    min_memory: LayoutTable
    most_offload: FloatColumn
    """Largest fraction of the optimizer that each may offload."""

    def __call__(self, deadline: Deadline) -> FloatColumn:
        """Objective that no policy of each class goes below; infinite where none fits."""
        size, context = len(self.fast), self.context
        both = context.price(LayoutTable.concat([self.fast, self.min_memory]))
        memory, bound = both.memory, context.objective.bound(both)[:size]
        states = (memory.weights + memory.gradients + memory.optimizer)[:, :size]
        states = states - self.most_offload * memory.offloadable[:, :size]
        fullest = states + memory.activations[:, size:] + memory.transients[:, :size]
        used = fullest.max(axis=0) * RESERVE_FACTOR + memory.outside_bytes[:size]
        return np.where(used <= context.memory_bytes, bound, np.inf)


@dataclass(frozen=True, slots=True)
class PolicyPrices:
    """Columns of some layouts, each with the least offload that makes it fit."""

    offload: FloatColumn
    """Fraction of the optimizer; negative where none fits, or the layout cannot win."""
    bound: FloatColumn
    """Objective that its simulation does not go below; infinite there."""
    priced: int
    """Layouts priced."""
    refused: Mapping[str, int]
    """Legal layouts that do not fit, by what is full."""
    least_host: float
    """Bytes of the host of a node that any of those needs at least whose GPUs have room."""


@dataclass(frozen=True, slots=True)
class PricePolicies:
    """Layouts that offload no more than they must: more only adds time, less does not fit."""

    context: PricingContext
    table: LayoutTable
    ranges: tuple[Fractions, ...]
    """Of the optimizer, that may be offloaded."""
    legal: BoolColumn
    """May a layout offload fractions of each range? Shape (range, row)."""
    cutoff: float
    """Objective that a layout must beat."""

    def __call__(self, deadline: Deadline) -> PolicyPrices:
        """Their columns."""
        plain, objective = self.context.price(self.table), self.context.objective
        chosen = least_offload(plain.memory, self.context.memory_bytes, self.ranges, self.legal)
        causes = {MEMORY: NO_ROOM, HOST_MEMORY: HOST_FULL, DRIVE_SPACE: DRIVES_FULL}
        legal = self.legal.any(axis=0)
        refused = {name: int((legal & (chosen == one)).sum()) for name, one in causes.items()}
        without = objective.bound(plain)
        chosen = np.where(without < self.cutoff, chosen, NO_ROOM)
        bound, some = np.where(chosen < 0, np.inf, without), np.flatnonzero(chosen > 0)
        if len(some):
            rows = with_fraction(self.table.take(some), chosen[some])
            bound[some] = objective.bound(self.context.price(rows))
        needed = self._least_host(plain.memory) if refused[HOST_MEMORY] else np.inf
        return PolicyPrices(chosen, bound, len(self.table) + len(some), refused, needed)

    def _least_host(self, memory: MemoryTable) -> float:
        """Of layouts that fit on the GPUs, whatever the host has."""
        away = replace(memory.off_device, host_limit=np.inf)
        memory = replace(memory, off_device=away)
        chosen = least_offload(memory, self.context.memory_bytes, self.ranges, self.legal)
        return float(np.where(chosen < 0, np.inf, away.host_used(chosen)).min(initial=np.inf))


@dataclass(frozen=True, slots=True)
class Simulate:
    """The schedules of some layouts."""

    context: PricingContext
    table: LayoutTable

    def __call__(self, deadline: Deadline) -> FloatColumn:
        """Their step times, seconds; NaN where no time was left, though of one at least there is.

        An order that suits the durations is made for each layout: it looks at the clock before.
        """
        adapts = ADAPTING[self.table.schedule]
        rows = [np.flatnonzero(~adapts), *np.flatnonzero(adapts)[:, None]]
        seconds = np.full(len(self.table), np.nan)
        for some in [one for one in rows if len(one)]:
            if deadline.seconds_left() > 0 or np.isnan(seconds).all():
                seconds[some] = step_seconds(self.context.with_table(self.table.take(some)))
        return seconds


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SharedPricing:
    """The same of many layouts, however many workers share them."""

    context: PricingContext
    workers: Workers
    partition: AffinityPartition

    def skeletons(self, table: LayoutTable, most: FloatColumn, budget: Budget) -> SkeletonPrices:
        """Skeletons, each of which may offload so much of the optimizer."""
        (bound, least), fits = np.zeros((2, len(table))), np.zeros(len(table), dtype=bool)

        def task(part: IntColumn) -> PriceSkeletons:
            return PriceSkeletons(self.context, table.take(part), most[part])

        for part, found in self._each(table, task, budget):
            bound[part], least[part], fits[part] = found.bound, found.least, found.fits
        return SkeletonPrices(bound, fits, least)

    def classes(
        self, fast: LayoutTable, min_memory: LayoutTable, most: FloatColumn, budget: Budget
    ) -> FloatColumn:
        """Objective that no policy of each class goes below."""
        bound = np.zeros(len(min_memory))

        def task(part: IntColumn) -> PriceClasses:
            return PriceClasses(self.context, fast.take(part), min_memory.take(part), most[part])

        for part, found in self._each(min_memory, task, budget):
            bound[part] = found
        return bound

    def policies(self, whole: PricePolicies, budget: Budget) -> PolicyPrices:
        """Layouts, each with the least offload that makes it fit."""
        table, refused = whole.table, Counter[str]()
        (offload, bound), priced, least_host = np.zeros((2, len(table))), 0, np.inf

        def task(part: IntColumn) -> PricePolicies:
            return replace(whole, table=table.take(part), legal=whole.legal[:, part])

        for part, found in self._each(table, task, budget):
            offload[part], bound[part] = found.offload, found.bound
            priced, least_host = priced + found.priced, min(least_host, found.least_host)
            refused.update(found.refused)
        return PolicyPrices(offload, bound, priced, refused, least_host)

    def _each(
        self, table: LayoutTable, task: Callable[[IntColumn], Task[Result]], budget: Budget
    ) -> Iterator[tuple[IntColumn, Result]]:
        """The rows of each part with what a worker finds of them."""
        parts = self.partition.by_worker(table, FEWEST_ROWS)
        return zip(parts, self.workers.run([task(one) for one in parts], budget), strict=True)

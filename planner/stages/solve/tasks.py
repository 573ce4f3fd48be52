"""What the second half of a search asks of its workers: bounds of many layouts, splits of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from trainplan.costmodel.blocks.candidates import Context
from trainplan.costmodel.layouts import BoolColumn, FloatColumn, IntColumn, LayoutTable
from trainplan.costmodel.layouts.table import FULL, UNIFORM
from trainplan.costmodel.spec import Layout
from trainplan.costmodel.step import Priced, price
from trainplan.costmodel.step.block_costs import BlockCosts, block_costs
from trainplan.costmodel.step.estimate import without_overhead
from trainplan.planner.space.offload import Fractions, fractions_of, most_within, with_fraction
from trainplan.planner.stages.bounds.layer_capacity import RankLimits, layer_capacities, may_fit
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.bounds.shapes import split_bound, states_bound
from trainplan.planner.stages.problem.of_layouts import stage_problems
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.best_split import best_split
from trainplan.planner.stages.solve.listed import NOTHING_KNOWN, SplitResult
from trainplan.planner.tree.memory_bounds import time_minimal
from trainplan.planner.work import Deadline

HALVINGS = 6
"""Of a range of fractions. Source: assumed; any number gives a bound."""


@dataclass(frozen=True, slots=True)
class SplitContext(Context):
    """What all layouts are asked for."""

    memory_bytes: float
    """Device memory that a rank may use."""
    apart: tuple[Fractions, ...] = ()
    """Ranges of `ranges` that rules tell apart, where there are such rules."""

    alike: bool = True
    """Do the virtual stages of a rank differ by one layer at most?"""

    @property
    def ranges(self) -> tuple[Fractions, ...]:
        """Of the optimizer, that may be offloaded: a table holds the least of its own that may."""
        return self.apart or fractions_of(self.traits, ())

    def rows(self, table: LayoutTable) -> list[StageProblem]:
        """The layouts of a table, one by one."""
        return stage_problems(
            self.with_table(table), self.memory_bytes, self.ranges, alike=self.alike
        )

    def costs(self, table: LayoutTable) -> tuple[Priced, BlockCosts]:
        """Layouts on the machine, evenly split, and their blocks: seconds of the least fraction.

        Bytes are those of the most: no fraction between takes less of either.
        """
        priced, fraction = price(self.with_table(table)), table.offload_optimizer
        return priced, block_costs(priced).with_room(most_within(fraction, self.ranges) - fraction)

    def offloaded(self, table: LayoutTable) -> tuple[Priced, BlockCosts]:
        """The least seconds and bytes of layouts, whatever they offload.

        The largest share leaves fewest bytes, and its seconds are left out: no share is below both.
        """
        priced, costs = self.costs(with_fraction(table, self.ranges[-1].most))
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
        return states_bound(priced, costs, limits=self.limits(incumbent_s))

    def bound(
        self, priced: Priced, costs: BlockCosts, incumbent_s: float, pool: PathPool
    ) -> FloatColumn:
        """Bound of every row; infinite where no split fits that is faster than the best."""
        return split_bound(priced, costs, limits=self.limits(incumbent_s), pool=pool)

    def limits(self, incumbent_s: float) -> RankLimits:
        """What a rank may use in a step that is faster than the best."""
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


class LeastOffload(Bound):
    """Fractions that layouts offload at least, however they are split; infinite where none do.

    Source: derived; of a range its bytes are at least those of its most, its seconds at least those
    of its least. Where ranks have no room or time for all layers even so, no split is an answer.
    """

    def __call__(self, deadline: Deadline) -> tuple[FloatColumn, PathPool]:
        """Fraction of every row, and what is known of pipelines."""
        least = self.table.offload_optimizer
        low, high = least.copy(), most_within(least, self.of.ranges)
        priced, costs = self.costs()
        per_share = costs.offload / np.where(least > 0, least, 1.0)
        limits, room = self.of.limits(self.incumbent_s), costs.with_room(-high)

        def hold(rows: IntColumn, first: FloatColumn, last: FloatColumn) -> BoolColumn:
            some = replace(room.with_room(last), offload=per_share * first)
            capacity = layer_capacities(priced.job, priced, some, rows, limits, alike=self.of.alike)
            return may_fit(priced.job, capacity)

        possible = hold(np.arange(len(least)), low, high)
        rows = np.flatnonzero(possible & (low < high))
        for _ in range(HALVINGS if len(rows) else 0):
            middle = (low + high) / 2
            lower = hold(rows, low, middle)
            upper = hold(rows[~lower], middle, high)
            high[rows[lower]] = middle[rows[lower]]
            low[rows[~lower]] = middle[rows[~lower]]
            possible[rows[~lower][~upper]] = False
            rows = rows[possible[rows]]
        for one in self.of.ranges:
            low = np.where((one.least < low) & (low < one.most), one.at_least(low), low)
        return np.where(possible, low, np.inf), self.pool

    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take at least."""
        return self.of.costs(self.table)


class BoundLayouts(Bound):
    """As they are."""

    fewest_rows = 128

    def costs(self) -> tuple[Priced, BlockCosts]:
        """What the layouts take."""
        return self.of.costs(self.table)


Asked = tuple[Layout, Fractions | None, float, float]
"""A layout, what it may offload, the seconds to beat, and the bound that is enough."""


@dataclass(frozen=True, slots=True)
class BestSplit:
    """The fastest split of one layout that is faster than the best."""

    problem: StageProblem
    incumbent_s: float
    pool: PathPool
    """Paths known for its pipeline."""
    target_bound_s: float
    """It ends early where no split is faster than that."""

    @property
    def asked(self) -> Asked:
        """The layout and the seconds to beat: more paths alone change no answer."""
        enough = min(self.target_bound_s, self.incumbent_s)
        return self.problem.table.row(0), self.problem.offloads, self.incumbent_s, enough

    def __call__(self, deadline: Deadline) -> tuple[SplitResult, PathPool]:
        """What is known of the split, and the paths that are known afterwards."""
        if deadline.seconds_left() <= 0:
            return NOTHING_KNOWN, self.pool
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

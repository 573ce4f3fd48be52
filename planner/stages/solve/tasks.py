"""What the second half of a search asks of its workers: bounds of many layouts, splits of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.blocks.candidates import Context
from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    IntColumn,
    ObjectColumn,
    RankRows,
    distinct,
    objects,
)
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import FULL, UNIFORM, LayoutTable, Rule
from trainplan.costmodel.step import Priced, price
from trainplan.costmodel.step.block_costs import BlockCosts, block_costs
from trainplan.costmodel.step.estimate import without_overhead
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.planner.space import Space
from trainplan.planner.space.grid import nodes
from trainplan.planner.space.offload import (
    Fractions,
    fractions_of_splits,
    most_within,
    with_fraction,
)
from trainplan.planner.space.policies import allows_any_split
from trainplan.planner.stages.bounds.layer_capacity import RankLimits, layer_capacities, may_fit
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.bounds.shapes import split_bound, states_bound
from trainplan.planner.stages.problem.of_layouts import stage_problems
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.best_split import best_split
from trainplan.planner.stages.solve.listed import NOTHING_KNOWN, SplitResult
from trainplan.planner.stages.solve.spread import balanced, stages_of
from trainplan.planner.tree import Pool
from trainplan.planner.tree.memory_bounds import MemoryFilter, time_minimal
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
        return self.apart or fractions_of_splits(self.traits, ())

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

    def limits(self, incumbent_s: float) -> RankLimits:
        """What a rank may use in a step that is faster than the best."""
        return RankLimits(self.memory_bytes, without_overhead(self.machine, incumbent_s))

    def searched(self, table: LayoutTable) -> BoolColumn:
        """Which layouts may be split, and have bounds that hold for every split."""
        return allows_any_split(self.traits, table)

    def nodes(self, table: LayoutTable) -> FloatColumn:
        """Bound of every node; infinite where none of its layouts is looked at."""
        return node_bound_seconds(self.with_table(table))

    def skeletons(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of every skeleton, whatever it recomputes and offloads.

        Cheap, for most hold more states than there is room: all ranks together, and their states
        alone. What waiting and activations add is never less than nothing.
        """
        bound = states_bound(*self.offloaded(table), limits=self.limits(incumbent_s))
        return np.maximum(self.nodes(table), bound)

    def classes(self, min_memory: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of classes of policies, each given by what keeps least, whatever they offload."""
        return self._bound(*self.of_classes(min_memory), incumbent_s, pool)

    def policies(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of policies, whatever they offload."""
        return self._bound(*self.offloaded(table), incumbent_s, pool)

    def layouts(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of layouts as they are."""
        return self._bound(*self.costs(table), incumbent_s, pool)

    def _bound(
        self, priced: Priced, costs: BlockCosts, incumbent_s: float, pool: PathPool
    ) -> FloatColumn:
        """Bound of every row; infinite where no split fits that is faster than the best."""
        return split_bound(priced, costs, limits=self.limits(incumbent_s), pool=pool)

    def least_offload(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Fractions that layouts offload at least, however they are split; infinite for none.

        Source: derived; of a range its bytes are at least those of its most, its seconds at least
        those of its least. Where ranks have no room or time for all layers even so, no split is an
        answer.
        """
        least = table.offload_optimizer
        low, high = least.copy(), most_within(least, self.ranges)
        priced, costs = self.costs(table)
        per_share = costs.offload / np.where(least > 0, least, 1.0)
        limits, room = self.limits(incumbent_s), costs.with_room(-high)

        def hold(rows: IntColumn, first: FloatColumn, last: FloatColumn) -> BoolColumn:
            some = replace(room.with_room(last), offload=per_share * first)
            found = np.ones(len(rows), dtype=bool)
            for one in some.bounding:
                capacity = layer_capacities(priced, one, rows, limits, alike=self.alike)
                found &= may_fit(one.kinds, capacity)
            return found

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
        for one in self.ranges:
            low = np.where((one.least < low) & (low < one.most), one.at_least(low), low)
        return np.where(possible, low, np.inf)

    def balanced(self, table: LayoutTable) -> ObjectColumn:
        """Balanced stages of every row, by its pipeline alone."""
        first, kind = distinct(table.pp, table.vpp, table.schedule)
        rows = self.rows(table.take(first)) if len(table) else []
        stages = [row.stages(stages_of(row, balanced(row))[0].tolist()) for row in rows]
        return objects([stages[number] for number in kind.tolist()])

    def split(self, table: LayoutTable) -> tuple[Priced, RankRows | float]:
        """Layouts with their stages, and the memory that ranks may use."""
        return price(self.with_table(table)), self.memory_bytes


Question = Callable[[LayoutTable, float, PathPool], FloatColumn]
"""What a context says of every row of a table, given the seconds to beat and paths."""


@dataclass(frozen=True, slots=True)
class Bounding:
    """One question about some layouts."""

    ask: Question
    table: LayoutTable
    incumbent_s: float
    pool: PathPool
    """What is known of pipelines."""

    def __call__(self, deadline: Deadline) -> tuple[FloatColumn, PathPool]:
        """The answer for every row, and what is known of pipelines then."""
        return self.ask(self.table, self.incumbent_s, self.pool), self.pool


def bounding(
    ask: Question,
    table: LayoutTable,
    parts: Sequence[IntColumn],
    incumbent_s: float,
    pool: PathPool,
) -> list[Bounding]:
    """A question about the rows of a table, in parts; each knows the means of all pipelines."""
    known = pool.means
    return [
        Bounding(ask, table.take(rows), incumbent_s, PathPool(means=dict(known), alike=pool.alike))
        for rows in parts
    ]


def roots_of(of: SplitContext, rules: Sequence[Rule]) -> Pool:
    """All nodes whose states may fit, each with its floor."""
    space = Space(of.job)
    table = nodes(space, MemoryFilter(space, of.machine, rules, of.memory_bytes)).table
    bound = of.nodes(table) if len(table) else np.zeros(0)
    return Pool.of(table, bound).prune(np.inf)


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

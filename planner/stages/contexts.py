"""What a search for splits asks of all layouts: their bounds, their rows, their first splits.

On equal nodes one machine prices a layout; in unlike node groups each of its ranks has the machine
of its group.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trainplan.costmodel.axes import stages_hold_layers
from trainplan.costmodel.block_costs import EMBEDDING, HEAD, MTP, usual_layers
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    IntColumn,
    ObjectColumn,
    RankRows,
    distinct,
    objects,
)
from trainplan.costmodel.layout import SCHEDULE_NAMES, StageSpec
from trainplan.costmodel.layouts import FULL, UNIFORM, LayoutTable
from trainplan.costmodel.step import (
    Priced,
    node_bound_seconds,
    price,
    price_heterogeneous,
    without_overhead,
)
from trainplan.planner.policies import (
    Fractions,
    allows_any_split,
    fractions_of_splits,
    most_within,
    with_fraction,
)
from trainplan.planner.stages.bounds.layer_capacity import (
    Layers,
    layer_capacities,
    may_fit,
    shape_capacity,
)
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.bounds.priced_groups import PricedGroups
from trainplan.planner.stages.bounds.rank_windows import path_bound, speed_bound, throughput_bound
from trainplan.planner.stages.bounds.shapes import split_bound, states_bound
from trainplan.planner.stages.problem.chunks import inner_chunks
from trainplan.planner.stages.problem.of_layouts import stage_problems
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.spread import balanced, filled, spread_over, stages_of
from trainplan.planner.tree import time_minimal

HALVINGS = 6
"""Of a range of fractions. Source: assumed; any number gives a bound."""


@dataclass(frozen=True, slots=True)
class SplitContext(Context):
    """What all layouts are asked for."""

    memory_bytes: float
    """Device memory that a rank may use, the most of any node group."""
    apart: tuple[Fractions, ...] = ()
    """Ranges of `ranges` that rules tell apart, where there are such rules."""

    alike: bool = True
    """Do the virtual stages of a rank differ by one layer at most?"""
    order: tuple[int, ...] = ()
    """Of the node groups along the pipeline; empty for equal nodes."""

    @property
    def ranges(self) -> tuple[Fractions, ...]:
        """Of the optimizer, that may be offloaded: a table holds the least of its own that may."""
        return self.apart or fractions_of_splits(self.traits, ())

    @property
    def usable(self) -> tuple[float, ...]:
        """Device memory that a rank of each node group may use."""
        return (self.memory_bytes,)

    def rows(self, table: LayoutTable) -> list[StageProblem]:
        """The layouts of a table, one by one."""
        candidates, order = self.with_table(table), self.order
        return stage_problems(candidates, self.usable, self.ranges, order=order, alike=self.alike)

    def priced(self, table: LayoutTable) -> PricedGroups:
        """Layouts on the machine of each node group, evenly split, and their blocks."""
        return PricedGroups.of(self.with_table(table), self.usable, self.ranges, self.order)

    def offloaded(self, table: LayoutTable) -> PricedGroups:
        """The least seconds and bytes of layouts, whatever they offload.

        The largest share leaves fewest bytes, and its seconds are left out: no share is below both.
        """
        of = self.priced(with_fraction(table, self.ranges[-1].most))
        (costs,) = of.costs
        return replace(of, costs=(replace(costs, offload=np.zeros_like(costs.offload)),))

    def of_classes(self, min_memory: LayoutTable) -> PricedGroups:
        """The least seconds and bytes of classes of policies, given by what keeps least.

        Source: derived; as `memory_bounds.class_extremes`.
        Of some layers recomputed together the input of the first is kept, of layers
        recomputed one by one that of each.
        """
        of = self.offloaded(time_minimal(min_memory))
        (costs,) = of.costs
        uniform = (min_memory.recompute == FULL) & (min_memory.recompute_method == UNIFORM)
        block = (min_memory.recompute == FULL) & ~uniform
        kept = np.where(block, np.minimum(costs.saved_bytes, costs.input_bytes), costs.saved_bytes)
        partly = np.flatnonzero(min_memory.recompute != FULL)
        if len(partly):
            kept[:, partly] = self.offloaded(min_memory.take(partly)).costs[0].saved_bytes
        inputs = costs.input_bytes / np.where(uniform, min_memory.recompute_num_layers, 1)
        return replace(of, costs=(replace(costs, saved_bytes=kept, input_bytes=inputs),))

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
        end = without_overhead(self.machine, incumbent_s)
        return np.maximum(self.nodes(table), states_bound(self.offloaded(table), end))

    def classes(self, min_memory: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of classes of policies, each given by what keeps least, whatever they offload."""
        return self._bound(self.of_classes(min_memory), incumbent_s, pool)

    def policies(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of policies, whatever they offload."""
        return self._bound(self.offloaded(table), incumbent_s, pool)

    def layouts(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of layouts as they are."""
        return self._bound(self.priced(table), incumbent_s, pool)

    def _bound(self, of: PricedGroups, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of every row; infinite where no split fits that is faster than the best."""
        return split_bound(of, without_overhead(self.machine, incumbent_s), pool)

    def least_offload(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Fractions that layouts offload at least, however they are split; infinite for none.

        Source: derived; of a range its bytes are at least those of its most, its seconds at least
        those of its least. Where ranks have no room or time for all layers even so, no split is an
        answer.
        """
        least = table.offload_optimizer
        low, high = least.copy(), most_within(least, self.ranges)
        of = self.priced(table)
        per_share = of.costs[0].offload / np.where(least > 0, least, 1.0)
        end, room = without_overhead(self.machine, incumbent_s), of.costs[0].with_room(-high)

        def hold(rows: IntColumn, first: FloatColumn, last: FloatColumn) -> BoolColumn:
            costs = replace(room.with_room(last), offload=per_share * first)
            found = np.ones(len(rows), dtype=bool)
            for one in replace(of, costs=(costs,)).bounding:
                found &= may_fit(one.kinds, layer_capacities(one, rows, end, alike=self.alike))
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


@dataclass(frozen=True, slots=True)
class GroupsContext(SplitContext):
    """Whole pipeline ranks in node groups, the groups in an order along the pipeline.

    Bounds hold for splits whose virtual stages of a rank differ by one layer at most.
    """

    margin: float = 0.0
    """Share of the memory of every device that must stay free."""

    @property
    def usable(self) -> tuple[float, ...]:
        """Device memory that a rank of each node group may use."""
        return tuple(one.memory_bytes * (1 - self.margin) for one in self.machine.groups)

    def searched(self, table: LayoutTable) -> BoolColumn:
        """All: of a layout whose paths bound nothing a balanced split is tried."""
        return np.ones(len(table), dtype=bool)

    def nodes(self, table: LayoutTable) -> FloatColumn:
        """Bound of every node with whole ranks in every group; infinite for others."""
        gpus = table.tp * table.cp * table.dp
        whole = [group.num_gpus % gpus == 0 for group in self.job.cluster.groups]
        own = np.all(whole, axis=0) & ~stages_hold_layers.broken(self.job, table)
        bound = np.full(len(table), np.inf)
        if own.any():
            bound[own] = throughput_bound(self.priced(table.take(own)))
        return bound

    def skeletons(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of every skeleton, whatever it recomputes and offloads."""
        one = self.priced(table)
        return speed_bound(one, one.recomputed_share(np.inf))

    def classes(self, min_memory: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of classes of policies, each given by what keeps least, whatever they offload.

        Source: as `planner.tree.memory_bounds.class_extremes`.
        """
        lean = with_fraction(min_memory, self.ranges[-1].most)
        return self._along_paths(time_minimal(lean), lean, incumbent_s, updates=False)

    def policies(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Nothing that their classes do not say."""
        return np.zeros(len(table))

    def least_offload(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """What they offload; ranges come in parts."""
        return table.offload_optimizer

    def layouts(self, table: LayoutTable, incumbent_s: float, pool: PathPool) -> FloatColumn:
        """Bound of layouts as they are."""
        return self._along_paths(table, table, incumbent_s, updates=True)

    def _along_paths(
        self, fast: LayoutTable, lean: LayoutTable, incumbent_s: float, *, updates: bool
    ) -> FloatColumn:
        """Bound by windows and paths of layouts that take so long and keep so much."""
        one = self.priced(fast)
        share = one.recomputed_share(incumbent_s)
        bound = speed_bound(one, share)
        rows = np.flatnonzero(bound < incumbent_s)
        if len(rows):
            some = _with_memory(self.priced(fast.take(rows)), self.priced(lean.take(rows)))
            closer = path_bound(some, share[rows], incumbent_s, updates=updates)
            bound[rows] = np.maximum(bound[rows], closer)
        return bound

    def balanced(self, table: LayoutTable) -> ObjectColumn:
        """Balanced stages of every row, as far as its ranks have room."""
        if not len(table):
            return objects([])
        stages: list[tuple[StageSpec, ...]] = [()] * len(table)
        of = self.priced(table)
        kind, layers = usual_layers(of.kinds)
        pair = of.pair(np.arange(len(table)), of.recomputed_share(np.inf))
        for rows in of.shapes:
            one, stage_of = int(rows[0]), of.stage_of(int(rows[0]))
            group = of.ranks(one)
            own, last = pair[group][:, :, rows], stage_of.max()
            modules = self.job.model.num_nextn_predict_layers
            first, end = ((stage_of == s).any(axis=1)[:, None] for s in (0, last))
            work = first * own[:, EMBEDDING] + end * (own[:, HEAD] + modules * own[:, MTP])
            least = np.repeat(inner_chunks(stage_of).sum(axis=1)[:, None], len(rows), axis=1)
            most = shape_capacity(of, rows, Layers.of(of.kinds, kind), np.inf, alike=True)
            most = most + (self.job.model.num_hidden_layers - layers)
            number = self.job.model.num_hidden_layers
            totals = filled(work, own[:, kind], least, most, number).T
            name = SCHEDULE_NAMES[of.table.schedule[one]]
            split = spread_over(name, stage_of.shape, totals, longer_first=True)
            groups = np.empty(stage_of.size, dtype=np.int64)
            groups[stage_of] = group[:, None]
            for row, counts in zip(rows.tolist(), split.tolist(), strict=True):
                stages[row] = _stages(tuple(counts), tuple(groups.tolist()))
        return objects(stages)

    def split(self, table: LayoutTable) -> tuple[Priced, RankRows | float]:
        """Layouts with their stages, and the memory that ranks may use."""
        mixed = price_heterogeneous(self.with_table(table))
        return mixed.whole, mixed.capacity * (1 - self.margin)


@lru_cache(maxsize=65_536)
def _stages(layers: tuple[int, ...], groups: tuple[int, ...]) -> tuple[StageSpec, ...]:
    """Stages with so many layers in some groups: one object for equal ones, told apart quickly."""
    return tuple(StageSpec(layers=n, group=g) for n, g in zip(layers, groups, strict=True))


def _with_memory(fast: PricedGroups, lean: PricedGroups) -> PricedGroups:
    """Layouts that take no longer than the ones and keep no more than the others."""
    if fast.table is lean.table:
        return fast
    pairs = zip(fast.priced, lean.priced, strict=True)
    priced = tuple(replace(one, table=other.table) for one, other in pairs)
    kept = zip(fast.costs, lean.costs, strict=True)
    costs = tuple(replace(one, saved_bytes=other.saved_bytes) for one, other in kept)
    return replace(fast, table=lean.table, priced=priced, costs=costs)

"""What layouts over unlike node groups are asked for: the questions of `SplitContext`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trainplan.costmodel.axes.pp import stages_hold_layers
from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    ObjectColumn,
    RankRows,
    objects,
)
from trainplan.costmodel.layout import SCHEDULE_NAMES, StageSpec
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import Priced
from trainplan.costmodel.step.block_costs import EMBEDDING, HEAD, MTP, usual_layers
from trainplan.costmodel.step.heterogeneous import price_heterogeneous
from trainplan.planner.space.offload import with_fraction
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.heterogeneous.bounds import (
    Grouped,
    layer_capacity,
    steady_bound,
    throughput_bound,
)
from trainplan.planner.stages.heterogeneous.windows import SplitLimits, path_bound
from trainplan.planner.stages.problem.chunks import inner_chunks
from trainplan.planner.stages.problem.of_layouts import problems_in_groups
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.spread import filled, spread_over
from trainplan.planner.stages.solve.tasks import SplitContext
from trainplan.planner.tree.memory_bounds import time_minimal


@dataclass(frozen=True, slots=True)
class GroupsContext(SplitContext):
    """Whole pipeline ranks in node groups, the groups in an order along the pipeline.

    Bounds hold for splits whose virtual stages of a rank differ by one layer at most.
    """

    order: tuple[int, ...] = ()
    margin: float = 0.0
    """Share of the memory of every device that must stay free."""

    def priced(self, table: LayoutTable) -> Grouped:
        """Layouts on the machine of each group."""
        return Grouped.of(self.with_table(table), self.ranges)

    def rows(self, table: LayoutTable) -> list[StageProblem]:
        """The layouts of a table, one by one."""
        memory = [one.memory_bytes * (1 - self.margin) for one in self.machine.groups]
        return problems_in_groups(
            self.with_table(table), self.order, memory, self.ranges, alike=self.alike
        )

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
        return steady_bound(one, self.order, one.recomputed_share(np.inf))

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
        bound = steady_bound(one, self.order, share)
        rows = np.flatnonzero(bound < incumbent_s)
        if len(rows):
            some = _with_memory(self.priced(fast.take(rows)), self.priced(lean.take(rows)))
            limits = SplitLimits(self.margin, incumbent_s)
            closer = path_bound(some, self.order, share[rows], limits, updates=updates)
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
            group = of.ranks(one, self.order)
            own, last = pair[group][:, :, rows], stage_of.max()
            modules = self.job.model.num_nextn_predict_layers
            first, end = ((stage_of == s).any(axis=1)[:, None] for s in (0, last))
            work = first * own[:, EMBEDDING] + end * (own[:, HEAD] + modules * own[:, MTP])
            least = np.repeat(inner_chunks(stage_of).sum(axis=1)[:, None], len(rows), axis=1)
            most = layer_capacity(of, self.order, self.margin, np.inf, rows=rows, kind=kind)
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


def _with_memory(fast: Grouped, lean: Grouped) -> Grouped:
    """Layouts that take no longer than the ones and keep no more than the others."""
    if fast.table is lean.table:
        return fast
    priced = tuple(
        replace(one, table=other.table) for one, other in zip(fast.priced, lean.priced, strict=True)
    )
    costs = tuple(
        replace(one, saved_bytes=other.saved_bytes)
        for one, other in zip(fast.costs, lean.costs, strict=True)
    )
    return replace(fast, table=lean.table, priced=priced, costs=costs)

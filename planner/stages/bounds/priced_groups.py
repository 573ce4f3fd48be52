"""Layouts priced on the machine of every rank: one machine, or that of each node group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.block_costs import (
    EMBEDDING,
    BlockCosts,
    Kinds,
    block_costs,
    layer_counts,
    usual_layers,
)
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import (
    FloatColumn,
    IntColumn,
    IntRankChunks,
    RowBoundaries,
    distinct,
)
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import FULL, UNIFORM
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import Costed, boundary_seconds, on_groups, without_overhead
from trainplan.planner.policies import Fractions, most_within
from trainplan.planner.stages.bounds.mean_paths import Pipeline
from trainplan.planner.stages.columns import GroupKindRows
from trainplan.planner.stages.problem.of_layouts import ranks_in_order


@dataclass(frozen=True, slots=True)
class PricedGroups(Candidates):
    """Layouts on the machine of each node group; equal nodes are one group."""

    priced: tuple[Costed, ...]
    costs: tuple[BlockCosts, ...]
    memory_bytes: tuple[float, ...]
    """Device memory that a rank may use, of each group."""
    order: tuple[int, ...]
    """Of the groups along the pipeline; empty for equal nodes."""

    @classmethod
    def of(
        cls,
        candidates: Candidates,
        memory_bytes: Sequence[float],
        ranges: Sequence[Fractions] = (),
        order: Sequence[int] = (),
    ) -> PricedGroups:
        """Price the blocks of each row, evenly split: seconds are those of what it offloads.

        Bytes are those of the largest fraction of the optimizer of its range, as in
        `stage_problems`: no fraction between takes less of either.
        """
        priced = tuple(map(Costed.of, on_groups(candidates) if order else (candidates,)))
        fraction = priced[0].table.offload_optimizer
        room = most_within(fraction, ranges) - fraction
        costs = tuple(block_costs(one).with_room(room) for one in priced)
        if order and _cheapest_bounds_more(costs[0]):
            costs = tuple(one.as_if_alike for one in costs)
        known = tuple(memory_bytes), tuple(order)
        return cls(*candidates.shared, priced[0].table, priced, costs, *known)

    @property
    def bounding(self) -> tuple[PricedGroups, ...]:
        """Those whose bounds hold, each for itself: as `BlockCosts.bounding`, of equal nodes."""
        return tuple(replace(self, costs=(one,)) for one in self.costs[0].bounding)

    @property
    def kinds(self) -> Kinds:
        """The kind of every layer."""
        return self.costs[0].kinds

    @property
    def microbatches(self) -> IntColumn:
        """Of one replica in one step."""
        return self.priced[0].microbatches

    @property
    def shapes(self) -> list[IntColumn]:
        """Rows of each pipeline shape, GPUs of a rank included."""
        return self._alike(self.microbatches)

    @property
    def filled(self) -> list[IntColumn]:
        """Rows of each pipeline shape, but for micro batches beyond those that fill it."""
        return self._alike(self.filling(np.arange(len(self.table))))

    def filling(self, rows: IntColumn) -> IntColumn:
        """Micro batches that fill the pipelines of some rows as full as they get."""
        table = self.table
        rounds = np.array([SCHEDULES[name].rounds_to_fill for name in SCHEDULE_NAMES])
        most = rounds[table.schedule[rows]] * table.pp[rows]
        return np.asarray(np.minimum(self.microbatches[rows], most))

    @property
    def pipelines(self) -> list[IntColumn]:
        """Rows of each schedule and number of stages, for any number of micro batches."""
        return self._alike()

    def _alike(self, *more: IntColumn) -> list[IntColumn]:
        first, code = distinct(self.table.schedule, self.table.pp, self.table.vpp, *more)
        order = np.argsort(code, kind="stable")
        return np.split(order, np.searchsorted(code[order], np.arange(1, len(first))))

    def ranks(self, row: int) -> IntColumn:
        """Node group of every pipeline rank of a row."""
        gpus = self.table.tp[row] * self.table.cp[row] * self.table.dp[row]
        return ranks_in_order(self.job, int(gpus), self.order)

    def pair(self, rows: IntColumn, recomputed: FloatColumn) -> GroupKindRows:
        """Both passes of a block, a share of it recomputed."""
        repeated = [recomputed * self.repeated(c, recomputed) for c in self.costs]
        pairs = zip(self.costs, repeated, strict=True)
        return np.stack([(c.forward + c.backward + more)[:, rows] for c, more in pairs])

    def repeated(self, costs: BlockCosts, recomputed: FloatColumn) -> FloatColumn:
        """Seconds that repeating a layer adds: where not all are repeated, maybe cheaper ones."""
        kinds = [kind for kind, _ in layer_counts(self.kinds)]
        repeated = np.zeros_like(costs.recompute_forward)
        repeated[kinds] = np.where(
            recomputed < 1,
            costs.recompute_forward[kinds].min(axis=0),
            costs.recompute_forward[kinds],
        )
        return repeated

    def recomputed_share(self, cutoff_s: float) -> FloatColumn:
        """Share of the layers that full recomputation repeats at least in a step below the cutoff.

        Source: as `stages.bounds.shapes`; a stage with n of at most h layers repeats no less than
        the share min(N, h) / h of them.
        """
        seconds, usual = without_overhead(self.machine, cutoff_s), usual_layers(self.kinds)[0]
        pair = np.min([(c.forward + c.backward)[usual] for c in self.costs], axis=0)
        layers = self.job.model.num_hidden_layers
        most = np.minimum(seconds / (self.microbatches * pair), layers)
        return self.recomputed_share_of(np.ceil(most / self.table.vpp))

    def recomputed_share_of(self, longest: FloatColumn) -> FloatColumn:
        """As `recomputed_share`, where no stage has more layers than `longest`."""
        full = self.table.recompute == FULL
        uniform = full & (self.table.recompute_method == UNIFORM)
        stage = np.maximum(1.0, longest)
        some = np.minimum(self.table.recompute_num_layers, stage) / stage
        return np.where(uniform, 1.0, np.where(full, some, 0.0))

    def recomputed_layers(self, rows: IntColumn) -> IntColumn:
        """Layers of a stage that are recomputed in full, if it has as many; of each row."""
        table, layers = self.table, self.job.model.num_hidden_layers
        uniform = table.recompute_method[rows] == UNIFORM
        number = np.where(uniform, layers, table.recompute_num_layers[rows])
        return np.where(table.recompute[rows] == FULL, number, 0)

    def messages(self, rows: IntColumn, ranks: IntColumn) -> tuple[RowBoundaries, RowBoundaries]:
        """Seconds of a message between each stage and the next, and how long it keeps a join busy.

        The rows have one shape; `ranks` is the group of each rank; results are (row, boundary).
        """
        some, stage_of = self.table.take(rows), self.stage_of(int(rows[0]))
        group = np.empty((len(rows), stage_of.size), dtype=np.int64)
        group[:, stage_of] = ranks[:, None]
        return boundary_seconds(self.with_table(some), group)

    def pipeline(self, row: int) -> Pipeline:
        """What the paths of a row depend on."""
        table = self.table
        shape = int(table.pp[row]), int(table.vpp[row]), int(self.microbatches[row])
        return self.schedule_of(row), *shape

    def stage_of(self, row: int) -> IntRankChunks:
        """Virtual stage of each (rank, chunk) of a row."""
        table = self.table
        way = SCHEDULES[SCHEDULE_NAMES[table.schedule[row]]].placement
        return placed(way, int(table.pp[row]), int(table.vpp[row]))


def _cheapest_bounds_more(costs: BlockCosts) -> bool:
    """Do all layers at the cost of the cheapest take longer than those of the usual kind?

    Source: derived; both bound the work of all layers from below, in the mean over the rows.
    """
    kind, count = usual_layers(costs.kinds)
    pair = (costs.forward + costs.backward)[:EMBEDDING]
    return bool(len(costs.kinds) * pair.min(axis=0).sum() > count * pair[kind].sum())

"""Step times that no split of the layers over node groups can beat, for many layouts at once.

Rank r runs all its layers m times, and the first micro batch has to come to it and its gradient to
go home: m W_r + sum over s < r of (W_s + messages) <= T, where gradients go home whole and a rank
is one stage; else m W_r <= T. A rank of group g runs 1 / w_g layers a second. Any y >= 0 with
m y_r + sum over s > r of y_s >= 1 / w_g(r) then bounds the layers that all ranks run in T, and so
T from below.

Source: linear programming duality; multiply the row of each rank by its y and add them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.blocks.candidates import Candidates
from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    IntColumn,
    IntRankChunks,
    RankRows,
    RowBoundaries,
    distinct,
)
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import FULL, UNIFORM
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import Priced, price
from trainplan.costmodel.step.block_costs import (
    EMBEDDING,
    HEAD,
    MTP,
    BlockCosts,
    Kinds,
    block_costs,
    layer_counts,
    usual_layers,
)
from trainplan.costmodel.step.estimate import with_overhead, without_overhead
from trainplan.costmodel.step.group_links import boundary_seconds, link_bound
from trainplan.costmodel.step.heterogeneous import on_groups
from trainplan.costmodel.timeline import StageSeconds
from trainplan.planner.space.offload import Fractions, most_within
from trainplan.planner.stages.bounds.layer_capacity import Layers, RankLimits, most_layers
from trainplan.planner.stages.columns import GroupKindRows
from trainplan.planner.stages.problem.of_layouts import ranks_in_order


@dataclass(frozen=True, slots=True)
class Grouped(Candidates):
    """Layouts on the machine of each node group."""

    priced: tuple[Priced, ...]
    costs: tuple[BlockCosts, ...]

    @classmethod
    def of(cls, candidates: Candidates, ranges: Sequence[Fractions] = ()) -> Grouped:
        """Price the blocks of each row on the machine of each group.

        With `ranges`, bytes are those of the largest fraction of the optimizer that a row may
        offload, as in `stage_problems`.
        """
        priced = tuple(map(price, on_groups(candidates)))
        fraction = priced[0].table.offload_optimizer
        room = most_within(fraction, ranges) - fraction
        costs = tuple(block_costs(one).with_room(room) for one in priced)
        if _cheapest_says_more(costs[0]):
            costs = tuple(one.as_if_alike for one in costs)
        return cls(*candidates.shared, priced[0].table, priced, costs)

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
        rounds = np.array([SCHEDULES[name].rounds_to_fill for name in SCHEDULE_NAMES])
        most = rounds[self.table.schedule] * self.table.pp
        return self._alike(np.minimum(self.microbatches, most))

    @property
    def pipelines(self) -> list[IntColumn]:
        """Rows of each schedule and number of stages, for any number of micro batches."""
        return self._alike()

    def _alike(self, *more: IntColumn) -> list[IntColumn]:
        first, code = distinct(self.table.schedule, self.table.pp, self.table.vpp, *more)
        order = np.argsort(code, kind="stable")
        return np.split(order, np.searchsorted(code[order], np.arange(1, len(first))))

    def ranks(self, row: int, order: Sequence[int]) -> IntColumn:
        """Node group of every pipeline rank of a row, the groups in an order."""
        table = self.table
        return ranks_in_order(self.job, int(table.tp[row] * table.cp[row] * table.dp[row]), order)

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

    def messages(self, rows: IntColumn, ranks: IntColumn) -> tuple[RowBoundaries, RowBoundaries]:
        """Seconds of a message between each stage and the next, and how long it keeps a join busy.

        The rows have one shape; `ranks` is the group of each rank; results are (row, boundary).
        """
        some, stage_of = self.table.take(rows), self.stage_of(int(rows[0]))
        group = np.empty((len(rows), stage_of.size), dtype=np.int64)
        group[:, stage_of] = ranks[:, None]
        return boundary_seconds(self.with_table(some), group)

    def stage_of(self, row: int) -> IntRankChunks:
        """Virtual stage of each (rank, chunk) of a row."""
        table = self.table
        way = SCHEDULES[SCHEDULE_NAMES[table.schedule[row]]].placement
        return placed(way, int(table.pp[row]), int(table.vpp[row]))


def _cheapest_says_more(costs: BlockCosts) -> bool:
    """Do all layers at the cost of the cheapest take longer than those of the usual kind?

    Source: derived; both bound the work of all layers from below, in the mean over the rows.
    """
    kind, count = usual_layers(costs.kinds)
    pair = (costs.forward + costs.backward)[:EMBEDDING]
    return bool(len(costs.kinds) * pair.min(axis=0).sum() > count * pair[kind].sum())


def steady_bound(of: Grouped, order: Sequence[int], recomputed: FloatColumn) -> FloatColumn:
    """Seconds no split of each row is below that repeats such a share of its layers.

    Source: the module.
    """
    bound, layer = np.zeros(len(of.table)), usual_layers(of.kinds)[0]
    for rows in of.pipelines:
        one, pair = int(rows[0]), of.pair(rows, recomputed)
        schedule = SCHEDULE_NAMES[of.table.schedule[one]]
        whole = (
            not SCHEDULES[schedule].splits_backward
            and schedule not in of.traits.pipeline.unsynchronised
        )
        fills = whole and int(of.table.vpp[one]) == 1
        group = of.ranks(one, order)
        messages, wire = of.messages(rows, group)
        prices = _prices(1 / pair[group, layer], of.microbatches[rows], fills=fills)
        layers = _layers(of, pair, layer)
        if fills and len(group) > 1:
            layers = layers + (prices[1:] * 2 * np.cumsum(messages, axis=1).T).sum(axis=0)
        shape = schedule, len(group), int(of.table.vpp[one]), 1
        nothing = np.zeros((len(rows), len(group) * shape[2]))
        busy = link_bound(shape, StageSeconds(nothing, nothing, nothing), np.zeros_like(wire), wire)
        busy = of.microbatches[rows] * busy * (schedule not in of.traits.pipeline.unsynchronised)
        bound[rows] = np.maximum(layers / prices.sum(axis=0), busy)
    return with_overhead(of.machine, bound)


def throughput_bound(of: Grouped) -> FloatColumn:
    """Seconds no layout below a node is below: all ranks run layers from the first second on.

    Source: a rank runs 1 / pair layers of a micro batch a second, so all ranks together take no
    less than all layers of all micro batches over the sum of these speeds.
    """
    rows, layer = np.arange(len(of.table)), usual_layers(of.kinds)[0]
    pair = of.pair(rows, np.zeros(len(rows)))
    gpus = of.table.tp * of.table.cp * of.table.dp
    ranks = np.array([group.num_gpus for group in of.job.cluster.groups])[:, None] // gpus
    speed = (ranks / pair[:, layer]).sum(axis=0)
    return with_overhead(of.machine, of.microbatches * _layers(of, pair, layer) / speed)


def may_fit(of: Grouped, order: Sequence[int], margin: float, cutoff_s: float) -> BoolColumn:
    """Rows whose ranks have bytes and seconds for all layers, as `bounds.layer_capacity.may_fit`.

    Each kind is asked as if no other had layers, which leaves each rank the most room for it.
    """
    result = np.ones(len(of.table), dtype=bool)
    for rows in of.filled:
        for kind, layers in layer_counts(of.kinds):
            most = layer_capacity(of, order, margin, cutoff_s, rows=rows, kind=kind).clip(0, layers)
            result[rows] &= most.sum(axis=0) >= layers
    return result


def layer_capacity(
    of: Grouped,
    order: Sequence[int],
    margin: float,
    cutoff_s: float,
    *,
    rows: IntColumn,
    kind: int,
) -> RankRows:
    """Layers of a kind that each rank has bytes and seconds for.

    The rows have one shape. Source: `bounds.layer_capacity.most_layers`, of each rank in its group.
    """
    seconds = without_overhead(of.machine, cutoff_s)
    limits = [RankLimits(one.memory_bytes * (1 - margin), seconds) for one in of.machine.groups]
    group = of.ranks(int(rows[0]), order)
    layers = Layers.of(of.kinds, kind)
    each = [
        most_layers(priced, costs, rows, limit, layers, alike=True)
        for priced, costs, limit in zip(of.priced, of.costs, limits, strict=True)
    ]
    return np.stack(each)[group, np.arange(len(group))]


def _layers(of: Grouped, pair: FloatColumn, layer: int) -> FloatColumn:
    """All blocks of the model as so many of its usual layers, each where it counts least.

    On whichever rank a block is, it keeps the rank busy for as many layers or more.
    """
    counts = dict(layer_counts(of.kinds))
    blocks = {EMBEDDING: 1, HEAD: 1, MTP: of.job.model.num_nextn_predict_layers}
    every = [*counts.items(), *((kind, n) for kind, n in blocks.items() if n)]
    worth = [n * (pair[:, kind] / pair[:, layer]).min(axis=0) for kind, n in every]
    return np.asarray(np.sum(worth, axis=0))


def _prices(speed: FloatColumn, m: IntColumn, *, fills: bool) -> RankRows:
    """Layers that a second more of each rank's limit is worth. Source: the module."""
    prices, behind = np.zeros_like(speed), np.zeros(speed.shape[1])
    for rank in range(len(speed) - 1, -1, -1):
        prices[rank] = np.maximum(0.0, speed[rank] - fills * behind) / m
        behind = behind + prices[rank]
    return prices

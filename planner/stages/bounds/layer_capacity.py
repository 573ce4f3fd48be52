"""Which layouts some split of the layers may fit into memory, for many layouts at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainplan.costmodel.block_costs import (
    EMBEDDING,
    HEAD,
    BlockCosts,
    Kinds,
    layer_counts,
    usual_layers,
)
from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    FloatMatrix,
    IntColumn,
    KindRankRows,
    RankRows,
    distinct,
)
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import FULL, UNIFORM
from trainplan.costmodel.memory import RESERVE_FACTOR, workspace_bytes
from trainplan.costmodel.program import EQUAL, most_held, placed
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import Costed
from trainplan.costmodel.timeline import named_program
from trainplan.planner.stages.bounds.priced_groups import PricedGroups
from trainplan.planner.stages.problem.chunks import in_flight_least
from trainplan.planner.stages.problem.memory import (
    ANYWHERE,
    fairest_moments,
    fullest_moment,
    least_in_transit,
)

ROUNDING = 1e-9
"""Of a layer; rounding alone must refuse nothing."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The decoder layers of one kind."""

    kind: int
    count: int
    others: int
    """Layers of other kinds."""
    others_first: bool
    """They are the first layers of the model: only ranks with the first stages hold any."""

    @property
    def first(self) -> int:
        """Layers in front of those of one kind, as `stages.problem.memory` counts them."""
        if not self.others:
            return 0
        return self.others if self.others_first else ANYWHERE

    @classmethod
    def of(cls, kinds: Kinds, kind: int) -> Layers:
        """Those of one kind among all."""
        own = [one == kind for one in kinds]
        others = own.count(False)
        return cls(kind, len(own) - others, others, bool(others) and sorted(own) == own)


def layer_capacities(
    of: PricedGroups, rows: IntColumn, pipeline_s: float, *, alike: bool = False
) -> KindRankRows:
    """Layers of each kind that each rank of some rows has bytes and seconds for.

    Of shape (kind, rank, row): 0 for ranks that a row does not have, and for the other kind where
    one is refused. A rank with n layers runs them for every micro batch and holds their states, and
    what the layers of the passes in flight keep, with the longer chunks where fewest passes are in
    flight. `pipeline_s` are the seconds of the pipelined part of a step.
    Source: `most_layers` solves both lines for n, bytes and seconds, which grow with n; the rows of
    one shape are solved at once. The update follows the passes.
    """
    seconds, table = pipeline_s - least_update(of), of.table.take(rows)
    kinds = [Layers.of(of.kinds, kind) for kind, _ in layer_counts(of.kinds)]
    found = np.zeros((len(kinds), int(table.pp.max(initial=0)), len(rows)))
    first, shape = distinct(table.schedule, table.pp, table.vpp, of.filling(rows))
    for number, one in enumerate(first.tolist()):
        some, ranks = np.flatnonzero(shape == number), int(table.pp[one])
        for place, layers in enumerate(kinds):
            most = shape_capacity(of, rows[some], layers, seconds[rows[some]], alike=alike).clip(0)
            found[place, :ranks, some] = most.T
            some = some[most.sum(axis=0) >= layers.count]
            if not len(some):
                break
    return found


def shape_capacity(
    of: PricedGroups, rows: IntColumn, layers: Layers, seconds: FloatColumn | float, *, alike: bool
) -> RankRows:
    """Layers of a kind that each rank has bytes and seconds of passes for; the rows have one shape.

    Source: `most_layers`, of each rank on the machine of its group.
    """
    each = [
        most_layers(priced, costs, rows, (memory_bytes, seconds), layers, alike=alike)
        for priced, costs, memory_bytes in zip(of.priced, of.costs, of.memory_bytes, strict=True)
    ]
    if not of.order:
        return each[0]
    group = of.ranks(int(rows[0]))
    return np.stack(each)[group, np.arange(len(group))]


def may_fit(kinds: Kinds, capacity: KindRankRows) -> BoolColumn:
    """Which rows are not refused, by the `layer_capacities` of their ranks: do all layers fit?

    Source: all layers of a kind need ranks that have room for them, so where the rooms of all ranks
    add up to fewer, no split fits.
    """
    count = np.array([count for _, count in layer_counts(kinds)])
    return np.asarray((capacity.sum(axis=1) >= count[:, None]).all(axis=0))


def states_may_fit(of: PricedGroups, rows: IntColumn, pipeline_s: float) -> BoolColumn:
    """Which of some rows on equal nodes are not refused even if layers kept no activations.

    Source: as `layer_capacities`, of ranks without embedding and head; spares it most rows.
    """
    (priced,), (costs,), (memory_bytes,) = of.priced, of.costs, of.memory_bytes
    kind, count = usual_layers(costs.kinds)
    capacity = _free_bytes(priced, costs, rows, np.zeros((2, 1), dtype=bool), memory_bytes)[0]
    seconds = pipeline_s / priced.microbatches[rows]
    capacity = capacity + _regrown(priced, costs, rows, np.zeros(1, dtype=np.int64))
    held = np.floor(capacity / costs.state_bytes[kind, rows] + ROUNDING)
    run = np.floor(seconds / _layer_seconds(priced, costs, kind, rows) + ROUNDING)
    return np.asarray(np.minimum(held, run) * priced.table.pp[rows] >= count)


def least_update(of: PricedGroups) -> FloatColumn:
    """Seconds at least of the optimizer step and what offloading adds to it, on equal nodes.

    Source: those of the rank with most layers, which holds no fewer than the mean. In node groups
    none is counted here: `rank_windows.update_seconds`.
    """
    if of.order:
        return np.zeros(len(of.table))
    (kind, count), (costs,) = usual_layers(of.kinds), of.costs
    layers = np.ceil(count / of.table.pp)
    return np.asarray((costs.optimizer + costs.offload)[kind] * layers)


def most_layers(
    priced: Costed,
    costs: BlockCosts,
    rows: IntColumn,
    limits: tuple[float, FloatColumn | float],
    layers: Layers,
    *,
    alike: bool,
) -> RankRows:
    """How many of the layers of a kind each rank has bytes and seconds of passes for, the `limits`.

    -1 where a rank does not even fit without. The rows have one pipeline shape, but for micro
    batches beyond those that fill it.
    Source: as `layer_capacities`.
    """
    table, one = priced.table, int(rows[0])
    name, kind, count = SCHEDULE_NAMES[table.schedule[one]], layers.kind, layers.count
    pp, vpp = int(table.pp[one]), int(table.vpp[one])
    rounds = SCHEDULES[name].rounds_to_fill * pp
    filling = min(int(priced.microbatches[one]), rounds)
    held = held_layers(name, pp, vpp, filling, layers, alike=alike)
    stage_of = placed(SCHEDULES[name].placement, pp, vpp)
    ends = np.stack([(stage_of == 0).any(axis=1), (stage_of == stage_of.max()).any(axis=1)])
    capacity = _free_bytes(priced, costs, rows, ends, limits[0])
    if table.offload_modules[rows].any():
        passes = fullest_moment(name, pp, vpp, filling)
        transit = least_in_transit(layers.first, stage_of, passes)
        capacity = capacity - transit[:, None] * costs.freed_bytes[kind, rows]
    seconds = limits[1] / priced.microbatches[rows]
    pair = (costs.forward + costs.backward)[[EMBEDDING, HEAD]][:, rows]
    seconds = seconds - ends.astype(np.float64).T @ pair  # on their ranks, both passes of each
    run = np.floor(seconds / _layer_seconds(priced, costs, kind, rows) + ROUNDING).clip(-1, count)
    number = np.arange(int(run.max(initial=0)) + 1)[None, :, None]
    fits = number <= run[:, None]
    capacity = capacity[:, None] + _regrown(priced, costs, rows, -(-number // vpp))
    for kept, fewer in _kept_bytes(priced, costs, kind, rows):
        in_flight = held.layers[:, : number.size, None]
        used = number * costs.state_bytes[kind, rows] + in_flight * kept
        fits &= used <= (capacity + (held.passes[:, None] * fewer)[:, None]) * (1 + ROUNDING)
    return np.asarray(fits.sum(axis=1) - 1.0)


@dataclass(frozen=True, slots=True)
class InFlight:
    """What a rank has in flight at its fullest moment."""

    passes: IntColumn
    """Of all chunks; (rank,)."""
    layers: FloatMatrix
    """Layers whose activations it holds at least, with 0, 1, ... layers of its own; (rank, n)."""


@lru_cache(maxsize=1024)
def held_layers(
    schedule: str, pp: int, vpp: int, num_microbatches: int, layers: Layers, *, alike: bool = False
) -> InFlight:
    """Passes in flight, and layers of a kind.

    How they are spread over the chunks of a rank is open, and which hold the others.
    Source: derived; a rank is fullest when it holds most layers of any kind, no fewer than at any
    moment or in the mean of some (`fairest_moments`), and of those in flight then the others are
    as many as their passes ever are.
    """
    passes = fullest_moment(schedule, pp, vpp, num_microbatches)
    most = most_held(named_program(schedule, pp, vpp, num_microbatches, EQUAL)).max(axis=1)
    stage_of = placed(SCHEDULES[schedule].placement, pp, vpp)
    first = (stage_of <= layers.others).any(axis=1, keepdims=True)
    others = np.where(first | (not layers.others_first), layers.others, 0)
    total, moments = (
        np.arange(layers.count + 1) + others,
        fairest_moments(schedule, pp, vpp, num_microbatches),
    )
    together = np.max(
        [in_flight_least(one, stage_of, total, alike=alike) for one in moments], axis=0
    )
    return InFlight(passes.sum(axis=1), (together - others * most[:, None]).clip(0))


def _free_bytes(
    priced: Costed, costs: BlockCosts, rows: IntColumn, ends: BoolColumn, memory_bytes: float
) -> RankRows:
    """Bytes that each rank has for its layers and their activations.

    Source: as `costmodel.memory.rank`; the rank with the head holds its logits in any split.
    """
    allocated = (memory_bytes - priced.memory.outside_bytes[rows]) / RESERVE_FACTOR
    head = priced.memory.logits[rows] + workspace_bytes(priced.job, priced.traits)
    transients = priced.memory.transients[:, rows].min(axis=0)
    transients = np.maximum(transients, ends[1][:, None] * head)
    state = costs.state_bytes[[EMBEDDING, HEAD]][:, rows]
    return np.asarray(allocated - transients - ends.astype(np.float64).T @ state)


def _regrown(priced: Costed, costs: BlockCosts, rows: IntColumn, longest: IntColumn) -> FloatColumn:
    """Bytes that stages of so many layers lack of those recomputed at once; (1, number, row).

    Source: as `costmodel.memory.rank`; layers that wait on the host tell no bytes.
    """
    table = priced.table
    uniform = (table.recompute[rows] == FULL) & (table.recompute_method[rows] == UNIFORM)
    most = np.where(uniform, table.recompute_num_layers[rows], 0)
    kept = costs.saved_bytes[:EMBEDDING, rows].max(axis=0)
    whole = uniform * priced.memory.transients[:, rows].min(axis=0)
    return np.asarray(np.where(kept > 0, (most - np.minimum(most, longest)) * kept, whole))


def _layer_seconds(priced: Costed, costs: BlockCosts, kind: int, rows: IntColumn) -> FloatColumn:
    """Both passes of one layer, repeated where all layers are.

    Source: a layer runs forward and backward once for each micro batch, and where all are
    recomputed its forward pass runs once more.
    """
    uniform = priced.table.recompute_method[rows] == UNIFORM
    pair = (costs.forward + costs.backward)[kind, rows]
    return np.asarray(pair + np.where(uniform, costs.recompute_forward[kind, rows], 0.0))


def _kept_bytes(
    priced: Costed, costs: BlockCosts, kind: int, rows: IntColumn
) -> list[tuple[FloatColumn, FloatColumn]]:
    """Activations of a micro batch that a stage keeps at least: of each layer, and less in all.

    Both lines hold: where N layers are recomputed, of n layers min(N, n) keep their input alone.
    Source: n - min(N, n) layers keep all and min(N, n) their input: no less than the input of each,
    nor than all of each less what N drop; groups of N keep one input.
    """
    table = priced.table
    full = table.recompute[rows] == FULL
    uniform = full & (table.recompute_method[rows] == UNIFORM)
    number = np.maximum(1, table.recompute_num_layers[rows])
    none, whole = np.zeros(len(rows)), costs.saved_bytes[kind, rows]
    inputs = np.minimum(costs.input_bytes[rows], whole)  # nothing where all layers are offloaded
    dropped = (costs.saved_bytes[:EMBEDDING, rows].max(axis=0) - inputs).clip(0.0)
    least = np.where(full, inputs / np.where(uniform, number, 1), whole)
    some = np.where(full & ~uniform, whole, least), np.where(full & ~uniform, number * dropped, 0.0)
    return [(least, none), some]

"""Step times that no split over unlike node groups beats: by speeds of ranks, windows and paths.

Speeds: rank r runs all its layers m times, and the first micro batch has to come to it and its
gradient to go home: m W_r + sum over s < r of (W_s + messages) <= T, where gradients go home whole
and a rank is one stage; else m W_r <= T. A rank of group g runs 1 / w_g layers a second. Any y >= 0
with m y_r + sum over s > r of y_s >= 1 / w_g(r) then bounds the layers that all ranks run in T, and
so T from below.
Source: linear programming duality; multiply the row of each rank by its y and add them up.

Windows: how many layers a rank may hold in a step below a time. A rank runs its layers for every
micro batch, waits for the first of them to come past the ranks before it, and for its gradients to
go home past them; and it needs memory. The ranks that may hold few leave the more to the others. A
time below which the layers do not find room bounds the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.block_costs import EMBEDDING, HEAD, MTP, layer_counts, usual_layers
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, RankRows
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.pipeline import ENDS
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import link_bound, with_overhead, without_overhead
from trainplan.costmodel.timeline import StageSeconds
from trainplan.planner.stages.bounds.layer_capacity import (
    Layers,
    layer_capacities,
    may_fit,
    shape_capacity,
)
from trainplan.planner.stages.bounds.mean_paths import Crossings, Durations, heterogeneous_path
from trainplan.planner.stages.bounds.priced_groups import PricedGroups
from trainplan.planner.stages.problem.chunks import Windows

NARROWINGS = 3
"""How often the fewest layers of ranks follow from the most of the others, and these from them."""
HALVINGS = 12
"""Of the interval in which a bound lies. Source: assumed; a share of 1/4096 of it."""
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Pace:
    """What rows of one shape take, in seconds of a step."""

    layer: RankRows
    """Of one layer, for all micro batches."""
    fixed: RankRows
    """Of the ends of the model, and of the messages on the way to a rank and home."""
    passing: RankRows
    """That a layer of the first stage of a rank adds to the way to the ranks behind it."""
    capacity: RankRows
    """Layers that memory allows."""
    least: RankRows
    """Layers that each rank holds whatever the time; (rank, 1)."""
    chunks: int
    layers: int

    @classmethod
    def of(cls, of: PricedGroups, rows: IntColumn, again: FloatColumn, pipeline_s: float) -> Pace:
        """Of rows of one shape, a share of whose layers is repeated, in a step below a time."""
        one, (kind, layers) = int(rows[0]), usual_layers(of.kinds)
        group, stage_of = of.ranks(one), of.stage_of(one)
        pair = of.pair(rows, again)[group]
        last = (stage_of == stage_of.max()).any(axis=1)
        first = np.arange(len(group)) == 0
        ends = pair[:, HEAD] + of.job.model.num_nextn_predict_layers * pair[:, MTP]
        ends = last[:, None] * ends + first[:, None] * pair[:, EMBEDDING]
        fill, drain = _counts_fill_and_drain(of, one)
        crossed = np.cumsum(of.messages(rows, group)[0][:, : len(group) - 1], axis=1).T
        way = np.zeros_like(ends)
        way[1:] = (fill + drain) * crossed + _passing(of, rows, group, EMBEDDING)[0]
        number = stage_of.shape[1] - first - last.astype(np.int64)
        alone = len(layer_counts(of.kinds)) == 1
        return cls(
            layer=of.microbatches[rows] * pair[:, kind],
            fixed=of.microbatches[rows] * ends + way,
            passing=_passing(of, rows, group, kind),
            capacity=shape_capacity(of, rows, Layers.of(of.kinds, kind), pipeline_s, alike=True),
            least=(number * alone).clip(0)[:, None].astype(np.float64),
            chunks=stage_of.shape[1],
            layers=layers,
        )

    def windows(self, seconds: FloatColumn) -> Windows[RankRows]:
        """Fewest and most layers of every rank in such a time. Source: that of the module."""
        least = np.broadcast_to(self.least, self.layer.shape)
        for _ in range(NARROWINGS):
            passed = np.cumsum(self.passing * np.floor(least / self.chunks), axis=0)
            left = seconds - self.fixed
            left[1:] -= passed[:-1]
            most = np.minimum(self.capacity, np.floor(left / self.layer + ROUNDING))
            least = np.maximum(self.least, self.layers - (most.sum(axis=0) - most))
        return Windows(least, most)


@dataclass(frozen=True, slots=True)
class Length:
    """Seconds of a path of each row."""

    fixed: FloatColumn
    """All but the usual layers."""
    layer: FloatColumn
    """That one of these adds on each rank; (rank, row)."""


def window_bound(
    of: PricedGroups, again: FloatColumn, cutoff_s: float, *, updates: bool
) -> FloatColumn:
    """Seconds no split of each row is below that fits and is below the cutoff; else infinite.

    The virtual stages of a rank differ by one layer at most. `updates`: count the optimizer step.
    Source: the module; bisection.
    """
    result, every = np.full(len(of.table), np.inf), np.arange(len(of.table))
    end, fits = without_overhead(of.machine, cutoff_s), np.ones(len(of.table), dtype=bool)
    if len(layer_counts(of.kinds)) > 1:
        fits = may_fit(of.kinds, layer_capacities(of, every, end, alike=True))
    for rows in of.filled:
        some = rows[fits[rows]]
        if len(some):
            pace, update = Pace.of(of, some, again, end), updates * update_seconds(of, some)
            result[some] = update + _least_seconds(pace, end - update, ())
    return with_overhead(of.machine, result)


def path_bound(
    of: PricedGroups, again: FloatColumn, cutoff_s: float, *, updates: bool
) -> FloatColumn:
    """As `window_bound`, by a mean of paths that are there for every split besides.

    Source: as `stages.bounds.shapes`, with the weights for the speeds and windows of the ranks.
    """
    result = window_bound(of, again, cutoff_s, updates=updates)
    end = without_overhead(of.machine, cutoff_s)
    for rows in of.shapes:
        some = rows[np.isfinite(result[rows])]
        name = SCHEDULE_NAMES[of.table.schedule[rows[0]]]
        if not len(some) or SCHEDULES[name].adapts or name in of.traits.pipeline.unsynchronised:
            continue
        pace, update = Pace.of(of, some, again, end), updates * update_seconds(of, some)
        path = _chosen(of, some, again, pace.windows(end - update))
        length = _along(of, path, some, again)
        found = with_overhead(of.machine, update + _least_seconds(pace, end - update, (length,)))
        result[some] = np.maximum(result[some], found)
    return result


def update_seconds(of: PricedGroups, rows: IntColumn) -> FloatColumn:
    """Seconds of the optimizer step at least, offload included, however the layers lie.

    Source: derived; ranks that need x seconds a layer do all layers in no less than the layers over
    the sum of 1 / x, on the slowest of them.
    """
    kind, layers = usual_layers(of.kinds)
    group, total = of.ranks(int(rows[0])), np.zeros(len(rows))
    for name in ("optimizer", "offload"):
        each = np.stack([getattr(costs, name)[kind, rows] for costs in of.costs])[group]
        with np.errstate(divide="ignore"):
            total += layers / (1 / each).sum(axis=0)
    return total


def _counts_fill_and_drain(of: PricedGroups, row: int) -> tuple[bool, bool]:
    """Does a step of a row count the way to a rank, and all of the way home?

    Source: as `costmodel.step.node_bound.counts_fill_and_drain`.
    """
    name = SCHEDULE_NAMES[of.table.schedule[row]]
    fill = name not in of.traits.pipeline.unsynchronised
    return fill, fill and not SCHEDULES[name].splits_backward


def _passing(of: PricedGroups, rows: IntColumn, group: IntColumn, kind: int) -> RankRows:
    """Seconds of one block on the way past each rank, and home."""
    fill, drain = _counts_fill_and_drain(of, int(rows[0]))
    passes = [fill * c.forward[kind, rows] + drain * c.backward[kind, rows] for c in of.costs]
    return np.asarray(np.stack(passes)[group])


def _least_seconds(pace: Pace, end: FloatColumn, paths: Sequence[Length]) -> FloatColumn:
    """The shortest time that may fit, to the last halving below it; infinite beyond an end.

    In the longest, every rank may run all layers after all others, along some paths too.
    """
    longest = (pace.fixed + pace.layers * (pace.layer + pace.passing)).sum(axis=0)
    for path in paths:
        longest = np.maximum(longest, path.fixed + pace.layers * path.layer.sum(axis=0))
    most = np.minimum(end, longest)
    least, possible = np.zeros_like(most), _may(pace, most, paths)
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        well = _may(pace, middle, paths)
        least, most = np.where(well, least, middle), np.where(well, middle, most)
    return np.where(possible, least, np.inf)


def _may(pace: Pace, seconds: FloatColumn, paths: Sequence[Length]) -> BoolColumn:
    """Have the ranks room in such a time, along some paths?"""
    windows = pace.windows(seconds)
    may = windows.hold(pace.layers)
    for path in paths:
        may &= path.fixed + windows.cheapest(path.layer, pace.layers) <= seconds
    return np.asarray(may)


def _chosen(
    of: PricedGroups, rows: IntColumn, again: FloatColumn, windows: Windows[RankRows]
) -> Crossings:
    """Weights of paths that suit the first of some rows; they hold for all."""
    one, (kind, layers) = int(rows[0]), usual_layers(of.kinds)
    group = of.ranks(one)
    pair, message = of.pair(rows[:1], again)[group, kind, 0], of.messages(rows[:1], group)[0]
    window = windows.least[:, 0], windows.most[:, 0]
    takes = Durations.of(pair, message[0], layers, window)
    return heterogeneous_path(of.pipeline(one), takes)


def _along(of: PricedGroups, path: Crossings, rows: IntColumn, share: FloatColumn) -> Length:
    """Of a mean path. Source: as `path_bound`; a layer counts in the cheapest stage of its rank."""
    group = of.ranks(int(rows[0]))
    stages = np.empty(path.stage_of.size, dtype=np.int64)
    stages[path.stage_of] = group[:, None]
    every = [(c.forward, c.backward, c.weight, of.repeated(c, share)) for c in of.costs]
    crossing = []
    for kind in range(len(set(of.kinds)) + ENDS):
        forward, backward, weight, again = (
            np.stack([column[kind, rows] for column in columns])[stages]
            for columns in zip(*every, strict=True)
        )
        crossing.append(path.seconds(forward, backward + share[rows] * again, weight))
    messages = of.messages(rows, group)[0]
    total = messages @ path.crossed[: messages.shape[1]]
    total = total + crossing[EMBEDDING][0] + crossing[HEAD][-1]
    total = total + of.job.model.num_nextn_predict_layers * crossing[MTP][-1]
    usual = usual_layers(of.kinds)[0]
    for kind, layers in layer_counts(of.kinds):
        total = total + (kind != usual) * layers * crossing[kind].min(axis=0)
    return Length(total, crossing[usual][path.stage_of].min(axis=1))


def speed_bound(of: PricedGroups, recomputed: FloatColumn) -> FloatColumn:
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
        group = of.ranks(one)
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


def throughput_bound(of: PricedGroups) -> FloatColumn:
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


def _layers(of: PricedGroups, pair: FloatColumn, layer: int) -> FloatColumn:
    """All blocks of the model as so many of its usual layers, each where it counts least.

    On whichever rank a block is, it keeps the rank busy for as many layers or more.
    """
    counts = dict(layer_counts(of.kinds))
    blocks = {EMBEDDING: 1, HEAD: 1, MTP: of.job.model.num_nextn_predict_layers}
    every = [*counts.items(), *((kind, n) for kind, n in blocks.items() if n)]
    shares = [n * (pair[:, kind] / pair[:, layer]).min(axis=0) for kind, n in every]
    return np.asarray(np.sum(shares, axis=0))


def _prices(speed: FloatColumn, m: IntColumn, *, fills: bool) -> RankRows:
    """Layers that a second more of each rank's limit is worth. Source: the module."""
    prices, behind = np.zeros_like(speed), np.zeros(speed.shape[1])
    for rank in range(len(speed) - 1, -1, -1):
        prices[rank] = np.maximum(0.0, speed[rank] - fills * behind) / m
        behind = behind + prices[rank]
    return prices

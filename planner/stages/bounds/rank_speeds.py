"""Step times that no split of the layers over node groups can beat, for many layouts at once.

Rank r runs all its layers m times, and the first micro batch has to come to it and its gradient to
go home: m W_r + sum over s < r of (W_s + messages) <= T, where gradients go home whole and a rank
is one stage; else m W_r <= T. A rank of group g runs 1 / w_g layers a second. Any y >= 0 with
m y_r + sum over s > r of y_s >= 1 / w_g(r) then bounds the layers that all ranks run in T, and so
T from below.

Source: linear programming duality; multiply the row of each rank by its y and add them up.
"""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn, RankRows
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step.block_costs import (
    EMBEDDING,
    HEAD,
    MTP,
    layer_counts,
    usual_layers,
)
from trainplan.costmodel.step.estimate import with_overhead
from trainplan.costmodel.step.group_links import link_bound
from trainplan.costmodel.timeline import StageSeconds
from trainplan.planner.stages.bounds.priced_groups import PricedGroups


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
    worth = [n * (pair[:, kind] / pair[:, layer]).min(axis=0) for kind, n in every]
    return np.asarray(np.sum(worth, axis=0))


def _prices(speed: FloatColumn, m: IntColumn, *, fills: bool) -> RankRows:
    """Layers that a second more of each rank's limit is worth. Source: the module."""
    prices, behind = np.zeros_like(speed), np.zeros(speed.shape[1])
    for rank in range(len(speed) - 1, -1, -1):
        prices[rank] = np.maximum(0.0, speed[rank] - fills * behind) / m
        behind = behind + prices[rank]
    return prices

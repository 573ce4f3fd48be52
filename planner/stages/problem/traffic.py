"""What follows the last pass of ranks: traffic and update of many layouts at once."""

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.block_costs import EMBEDDING, HEAD, MTP, BlockCosts
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn, IntColumn, IntRankChunks, RankRows
from trainplan.costmodel.memory import RankParams
from trainplan.costmodel.pipeline import ENDS, adds_to_a_copy, table_sum_seconds
from trainplan.costmodel.schedules import RankSeconds
from trainplan.costmodel.traffic import step_traffic_seconds
from trainplan.planner.stages.columns import RankKinds

FIRST, LAST = 1, 2
"""Bits of the ends a rank holds: the first virtual stage, the last one, or both."""


def ends_held(stage_of: IntRankChunks) -> IntColumn:
    """The ends of the pipeline on each rank; `stage_of` has shape (rank, chunk)."""
    first, last = ((stage_of == one).any(axis=1) for one in (0, stage_of.size - 1))
    return np.asarray(FIRST * first + LAST * last)


def traffic_seconds(
    candidates: Candidates, costs: BlockCosts, blocks: RankKinds, passes: tuple[RankRows, RankRows]
) -> RankRows:
    """Seconds by which the traffic of ranks outlasts their passes.

    `blocks` has shape (rank, kind); `passes` are forward and backward seconds, (rank, row).
    Source: `costmodel.traffic.data_parallel.step_traffic_seconds`.
    """
    params, zero = costs.params, np.zeros((1, 1))
    expert = blocks @ params.expert if params.has_experts else zero
    held = RankParams(blocks @ params.shared, expert, params.has_experts)
    work = RankSeconds(*passes, weight=zero, reach=zero, home=zero, unsynchronised=zero[0] > 0)
    copied = adds_to_a_copy(blocks[:, EMBEDDING], blocks[:, HEAD])[:, None]
    own = step_traffic_seconds(candidates, held, work)
    return np.asarray(own + copied * table_sum_seconds(candidates))


MOST_KINDS = 2
"""Of more kinds of layer not every mixture is priced: as if all were of one kind."""


def least_tails(candidates: Candidates, costs: BlockCosts) -> FloatColumn:
    """Least traffic and least update seconds of a rank; shape (2, ends held, layers, row).

    Of 0, 1, ... layers, whatever their kinds.

    Source: every mixture of kinds is priced for each number of layers, with each set of ends; the
    least over mixtures bounds whichever the rank gets.
    """
    model = candidates.job.model
    if len(model.kinds) > MOST_KINDS:
        costs = costs.with_one_kind(states=np.min, passes=np.max)
    table, (total, blocks) = candidates.table, _blocks(model)
    layers = blocks[:, :EMBEDDING].sum(axis=1)
    backward = blocks @ costs.backward + layers[:, None] * costs.recompute_forward.max(axis=0)
    passes = blocks @ costs.forward, backward
    traffic = traffic_seconds(candidates, costs, blocks, passes)
    every = np.stack([traffic, blocks @ (costs.optimizer + costs.offload)])
    parts = every.reshape(2, -1, len(total), len(table))
    return np.asarray(np.minimum.reduceat(parts, np.unique(total, return_index=True)[1], axis=2))


def most_hidden(candidates: Candidates, costs: BlockCosts) -> FloatColumn:
    """Seconds of a rank's traffic at most that longer backward passes would hide; of each row.

    Source: traffic is exposed for longest beside passes that recompute nothing, and for shortest
    beside endless ones.
    """
    model = candidates.job.model
    if len(model.kinds) > MOST_KINDS:
        costs = costs.with_one_kind(states=np.max, passes=np.min)
    _, blocks = _blocks(model)
    forward, backward = blocks @ costs.forward, blocks @ costs.backward
    shown, hidden = (
        traffic_seconds(candidates, costs, blocks, (forward, backward + more))
        for more in (0.0, ENDLESS_S)
    )
    return np.asarray((shown - hidden).max(axis=0))


ENDLESS_S = 1e9
"""A pass behind which all traffic is hidden that can be."""


def _blocks(model: ModelSpec) -> tuple[IntColumn, FloatColumn]:
    """Layers of a rank in ascending order, and its blocks with each set of ends and each of those.

    Shapes (mixture,) and (ends and mixture, kind).
    """
    mixtures = mixed_layers(model, 0, model.num_hidden_layers)
    held = np.zeros((FIRST + LAST + 1, len(mixtures), mixtures.shape[1] + ENDS))
    held[:, :, :EMBEDDING] = mixtures
    bits = np.arange(len(held))[:, None]
    held[:, :, EMBEDDING], held[:, :, HEAD] = (bits & FIRST) > 0, (bits & LAST) > 0
    held[:, :, MTP] = held[:, :, HEAD] * model.num_nextn_predict_layers
    return mixtures.sum(axis=1), held.reshape(-1, held.shape[-1])


def mixed_layers(model: ModelSpec, least: int, most: int) -> IntColumn:
    """Layers by kind of one rank that has `least` to `most`, in ascending order: all that may be.

    Shape (mixture, kind); of more kinds than MOST_KINDS, as if all were of one.
    """
    if len(model.kinds) != MOST_KINDS:
        return np.arange(least, most + 1)[:, None]
    first = model.kind_of_layer.count(0)
    second = model.num_hidden_layers - first
    pairs = [
        (some, total - some)
        for total in range(least, most + 1)
        for some in range(max(0, total - second), min(total, first) + 1)
    ]
    return np.array(pairs).reshape(-1, MOST_KINDS)

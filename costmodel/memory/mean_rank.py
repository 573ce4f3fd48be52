"""Weights, gradients and optimizer of the mean pipeline rank, which no split goes below."""

from collections import Counter

import numpy as np

from trainplan.costmodel.candidates import Candidates, Context
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.memory.optimizer_state import block_state_bytes, optimizer_bytes
from trainplan.costmodel.memory.states import (
    STAGE_BY_STAGE,
    BlockParams,
    RankParams,
    gradient_bytes_per_param,
)
from trainplan.costmodel.memory.trained import held_params, held_weight_bytes
from trainplan.costmodel.shard_groups import shard_groups


def mean_rank_params(rows: Candidates) -> RankParams:
    """Parameters of the mean pipeline rank."""
    return _mean(rows, held_params(rows.job, rows.table))


def _mean(rows: Candidates, params: BlockParams) -> RankParams:
    """What a pipeline rank has of its blocks, mean over the ranks; as rank classes hold it."""
    modules = rows.job.model.num_nextn_predict_layers
    shared = params.embedding + params.tower.trained + params.head + modules * params.mtp
    expert = modules * params.mtp_experts
    for kind, count in sorted(Counter(rows.job.model.kind_of_layer).items()):
        shared = shared + count * params.layers[kind]
        expert = expert + count * params.experts[kind]
    trained = _mean(rows, params.trained) if params.trained else None
    return RankParams(shared / rows.table.pp, expert / rows.table.pp, trained=trained)


def mean_state_bytes(
    candidates: Candidates, held: RankParams, *, between_steps: bool = False
) -> FloatColumn:
    """Weights, gradients and optimizer on the GPU of a rank that holds so much, as it is executed.

    Between steps there are no gradients.

    Source: as `rank_memory`, under the ZeRO stage and the offload of the layouts.
    """
    candidates = candidates.as_executed
    weights, own = held_weight_bytes(candidates, held), held.with_gradients
    weights = np.where(candidates.table.offload_parameters > 0, 0.0, weights)
    gradients = own.weighted(
        *(gradient_bytes_per_param(candidates, one) for one in shard_groups(candidates))
    )
    blocks = block_state_bytes(candidates)
    shaped = None if blocks is None else _mean(candidates, blocks)
    gradients = gradients * (not between_steps)
    return weights + gradients + optimizer_bytes(candidates, own, shaped)


def least_memory_stages(on: Context) -> dict[str, int]:
    """Columns of the virtual stages whose gradients are fewest at once, by name.

    Source: `stages_one_by_one`.
    """
    if not on.traits.sharding.whole_under_pipeline:
        return {}
    return {"vpp": on.job.model.num_hidden_layers, "schedule": int(STAGE_BY_STAGE.argmax())}

"""Bytes that a tower adds to the first stage: frozen weights, kept activations, its own peak."""

import numpy as np

from trainplan.costmodel.blocks import RowBlocks
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.layouts import FULL
from trainplan.costmodel.memory.states import (
    gradient_bytes_per_param,
    optimizer_bytes_per_param,
    weight_bytes_per_param,
)
from trainplan.costmodel.memory.tower_params import TowerParams
from trainplan.costmodel.memory.transients import layer_backward_bytes
from trainplan.costmodel.shard_groups import shard_groups
from trainplan.costmodel.shards import tower_layers, tower_rows


def frozen_bytes(candidates: Candidates, params: TowerParams) -> FloatColumn:
    """Weights that are never updated: no gradient, no state, no copy in low precision.

    Source: as `weight_bytes_per_param`; with fp32 shards as master weights, frozen ones are such
    shards too (PyTorch FSDP, arXiv:2304.11277, section 3.2).
    """
    table, storage = candidates.table, float(candidates.job.training.storage_bytes)
    footprint = candidates.traits.footprint
    masters = footprint.sharded_weights_are_master
    shards = shard_groups(candidates)[0].weights
    sharded = (footprint.master_bytes if masters else storage) / shards
    return np.asarray(params.frozen * np.where(table.zero_stage == 3, sharded, storage))


def held_bytes(candidates: Candidates, blocks: RowBlocks) -> FloatColumn:
    """Activations of one micro batch between its passes; inputs of layers where all are repeated.

    Source: as `costmodel.step.tower`.
    """
    tower, full = blocks.kinds.tower, candidates.table.recompute == FULL
    if tower is None:
        return np.zeros(len(candidates.table))
    return np.where(full, tower.recomputed_bytes[blocks.key], tower.block.saved_bytes[blocks.key])


def moment_bytes(candidates: Candidates, blocks: RowBlocks) -> FloatColumn:
    """What lives while one layer of the tower runs backward; of a frozen one, while it runs.

    Source: `layer_backward_bytes` of a layer of the tower, with what the layer made again under
    full recomputation; a frozen layer makes no more than it would make again.
    """
    tower, made = candidates.job.model.tower, blocks.kinds.tower
    most = np.zeros(len(candidates.table))
    if tower is None or made is None:
        return most
    backward = tower.frozen == "none"
    again = (candidates.table.recompute == FULL) | (not backward)
    for kind in tower_layers(tower):
        rows = tower_rows(candidates, kind)
        tokens = rows.table.micro_batch_size.astype(np.float64) * kind.length
        most = np.maximum(most, backward * layer_backward_bytes(rows, tokens))
    return np.asarray(most + again * made.layer_bytes[blocks.key])


def tower_bytes(rows: Candidates, blocks: RowBlocks, params: TowerParams) -> FloatColumn:
    """All that a rank with the tower alone holds but activations between passes.

    Weights, gradients and optimizer, frozen weights, and what one layer needs while it runs.
    Source: as `rank_memory`.
    """
    groups = shard_groups(rows)[0]
    each = sum(
        one(rows, groups)
        for one in (weight_bytes_per_param, gradient_bytes_per_param, optimizer_bytes_per_param)
    )
    state = params.trained * each + frozen_bytes(rows, params)
    return np.asarray(state + moment_bytes(rows, blocks))

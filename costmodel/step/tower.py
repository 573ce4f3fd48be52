"""Seconds of a tower in both passes of a micro batch, for each row."""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.blocks import TowerBlock
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.layouts import FULL
from trainplan.costmodel.memory import RankParams, TowerParams
from trainplan.costmodel.pipeline import COLUMNS, LayerSeconds, layer_seconds
from trainplan.costmodel.traffic import (
    PassTraffic,
    Unit,
    contention_of,
    overlapped_layer,
    sharded_traffic,
)


def with_tower(
    candidates: Candidates,
    embedding: LayerSeconds,
    tower: TowerBlock | None,
    *,
    key: IntColumn,
    params: TowerParams,
) -> LayerSeconds:
    """The token embedding and the tower, one after the other.

    Full recomputation repeats its layers; its states are sharded layer by layer, overlapped with
    its passes.
    Source: `costmodel.blocks.tower`; Megatron-Bridge @067f987d `modelling_qwen3_vl/
    transformer_config.py` (recompute_granularity of the decoder); transformers
    `modeling_layers.py`, GradientCheckpointingLayer, of which layers of towers are.
    """
    if tower is None:
        return embedding
    full = candidates.table.recompute == FULL
    again = full * tower.block.recompute_forward.total[key]
    own = layer_seconds(tower.block, key, again)
    if (candidates.table.zero_stage >= 2).any():
        own = _sharded(candidates, own, params)
    pairs = zip(COLUMNS(embedding), COLUMNS(own), strict=True)
    return LayerSeconds(*(one + other for one, other in pairs))


def _sharded(candidates: Candidates, own: LayerSeconds, params: TowerParams) -> LayerSeconds:
    """With what gathering weights and reducing gradients exposes, of layers as long as their mean.

    Source: `sharded_traffic`, one unit for each layer; frozen weights are gathered in the forward
    pass alone and have no gradient.
    """
    tower = candidates.job.model.tower
    assert tower is not None
    layers, nothing = tower.num_hidden_layers, np.zeros(len(candidates.table))
    trained, frozen = sharded_traffic(
        candidates,
        [Unit(RankParams(held / layers, nothing)) for held in (params.trained, params.frozen)],
    )
    traffic = PassTraffic(
        forward=trained.forward + frozen.forward,
        backward=trained.backward,
        forward_alone=trained.forward_alone + frozen.forward_alone,
        backward_alone=trained.backward_alone,
        recompute_forward=nothing,
        slowing=trained.slowing,
    )
    each = _times(own, 1 / layers)
    found = _times(overlapped_layer(contention_of(candidates), each, traffic, each), layers)
    return replace(found, recompute_forward=nothing)


def _times(one: LayerSeconds, factor: float) -> LayerSeconds:
    columns: list[FloatColumn] = [factor * column for column in COLUMNS(one)]
    return LayerSeconds(*columns)

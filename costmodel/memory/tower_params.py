"""Parameters of a tower on one rank of the first stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.architecture import TowerSpec
from trainplan.costmodel.columns import FloatColumn, IntColumn, Rows
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.shards import tower_ranks
from trainplan.costmodel.towers import (
    encoder_outside_params,
    layer_weights,
    projector_params,
    tower_layer_params,
)


@dataclass(frozen=True, slots=True)
class TowerParams:
    """Those that are trained, and those that are frozen."""

    trained: Rows
    frozen: Rows

    def take(self, rows: IntColumn) -> TowerParams:
        """The rows picked by an index."""
        return TowerParams(self.trained[rows], self.frozen[rows])


def tower_rank_params(tower: TowerSpec | None, table: LayoutTable) -> TowerParams:
    """The whole tower on one tensor rank; where it is cut, what makes patches and norms is not.

    Source: as `blocks.tower`; biases of cut columns are cut with them (arXiv:1909.08053, section
    3).
    """
    zero = np.zeros(len(table))
    if tower is None:
        return TowerParams(zero, zero)
    tp = tower_ranks(tower, table)
    encoder, projectors = _encoder(tower, tp), _projectors(tower, tp)
    frozen = {"none": zero, "encoder": encoder, "all": encoder + projectors}[tower.frozen]
    return TowerParams(encoder + projectors - frozen, frozen)


def _encoder(tower: TowerSpec, tp: IntColumn) -> FloatColumn:
    """Layers, whose matrices and biases of columns are cut, and the rest. Source: as above."""
    heads, ups = tower.num_attention_heads * tower.dims_per_head, 2 if tower.gated_mlp else 1
    cut = layer_weights(tower) + tower.mlp_bias * ups * tower.intermediate_size
    cut += tower.qkv_bias * (3 if tower.key_bias else 2) * heads
    whole = tower_layer_params(tower) - cut
    layers = tower.num_hidden_layers * (cut / tp + whole)
    return layers + encoder_outside_params(tower)


def _projectors(tower: TowerSpec, tp: IntColumn) -> FloatColumn:
    """Matrices and the biases of every other one, which is cut by columns. Source: as above."""
    cut = sum(
        one.in_features * one.out_features + (place % 2 == 0) * one.bias * one.out_features
        for projector in tower.projectors
        for place, one in enumerate(projector.linears)
    )
    return cut / tp + (projector_params(tower) - cut)

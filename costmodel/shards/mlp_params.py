"""Parameters of the MLP half of a layer on one rank of tensor parallelism.

Source: Megatron-LM `core/tensor_parallel/layers.py`, RowParallelLinear: its products are cut along
their inputs, and every rank holds the whole bias, which is added after the sum.
"""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.model.params import mlp_params


def dense_mlp_params(model: ModelSpec, table: LayoutTable) -> FloatColumn:
    """Of one dense MLP, where a layer has one. Source: as this module."""
    if model.feed_forward == "none":
        return np.zeros(len(table))
    return _cut(model, model.intermediate_size, table.tp, bias=model.mlp_bias)


def experts_params(model: ModelSpec, moe: MoeSpec, table: LayoutTable) -> FloatColumn:
    """Of the routed experts of one layer that a rank holds. Source: as this module."""
    width, hidden = moe.moe_intermediate_size, moe.latent_size
    one = _cut(model, width, table.etp, bias=moe.expert_bias, hidden=hidden)
    return moe.num_experts / table.ep * one


def shared_experts_params(model: ModelSpec, moe: MoeSpec, table: LayoutTable) -> FloatColumn:
    """Of all shared experts of one layer. Source: as this module."""
    width = moe.shared_expert_intermediate_size
    return bool(width) * _cut(model, width, table.tp, bias=moe.expert_bias)


def _cut(
    model: ModelSpec, width: int, ranks: IntColumn, *, bias: bool, hidden: int | None = None
) -> FloatColumn:
    """Of an MLP over so many ranks. Source: as this module."""
    whole = (hidden or model.hidden_size) if bias else 0
    return (mlp_params(model, width, bias=bias, hidden=hidden) - whole) / ranks + whole

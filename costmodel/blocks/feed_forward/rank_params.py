"""Parameters of the MLP half of a layer on one rank of tensor parallelism.

Source: Megatron-LM `core/tensor_parallel/layers.py`, RowParallelLinear: its products are cut along
their inputs, and every rank holds the whole bias, which is added after the sum.
"""

from __future__ import annotations

from trainplan.costmodel.layouts import FloatColumn, LayoutTable
from trainplan.costmodel.layouts.table import IntColumn
from trainplan.costmodel.model.params import mlp_params
from trainplan.costmodel.spec import ModelSpec, MoeSpec


def dense_mlp_params(model: ModelSpec, table: LayoutTable) -> FloatColumn:
    """Of one dense MLP. Source: as this module."""
    return _cut(model, model.intermediate_size, table.tp, bias=model.mlp_bias)


def experts_params(model: ModelSpec, moe: MoeSpec, table: LayoutTable) -> FloatColumn:
    """Of the routed experts of one layer that a rank holds. Source: as this module."""
    one = _cut(model, moe.moe_intermediate_size, table.etp, bias=moe.expert_bias)
    return moe.num_experts / table.ep * one


def shared_experts_params(model: ModelSpec, moe: MoeSpec, table: LayoutTable) -> FloatColumn:
    """Of all shared experts of one layer. Source: as this module."""
    width = moe.shared_expert_intermediate_size
    return bool(width) * _cut(model, width, table.tp, bias=moe.expert_bias)


def _cut(model: ModelSpec, width: int, ranks: IntColumn, *, bias: bool) -> FloatColumn:
    """Of an MLP over so many ranks. Source: as this module."""
    whole = model.hidden_size if bias else 0
    return (mlp_params(model, width, bias=bias) - whole) / ranks + whole

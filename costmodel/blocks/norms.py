"""Norms of a layer as a module that recomputation may choose."""

from __future__ import annotations

from trainplan.costmodel.base import BYTES_FP8
from trainplan.costmodel.blocks.parts import Module, Shapes
from trainplan.costmodel.machine.compute import elementwise_seconds


def norm_module(shapes: Shapes, separate_norms: int) -> Module:
    """Norms of one layer that can be recomputed: those not fused into the product behind them.

    Their output is kept in the precision of that product.
    Source: Megatron Core gpt_layer_specs.py (MLA's and an expert layer's norms).
    """
    machine, hidden = shapes.machine, shapes.job.model.hidden_size
    element = BYTES_FP8 if shapes.keeps_cast_inputs else shapes.storage
    normed = separate_norms * shapes.tokens * hidden / shapes.residual_shards
    moved = elementwise_seconds(machine, 2 * shapes.storage * normed)
    launch = separate_norms * machine.constants.launch_seconds
    return Module("layernorm", moved + launch, element * normed)

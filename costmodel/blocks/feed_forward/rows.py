"""Rows that experts see, and what of them is kept for the backward pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.base import BYTES_FP8, BYTES_FP32
from trainplan.costmodel.blocks.activations import (
    activation_tensors,
    narrow_inputs,
    router_bytes_kept,
)
from trainplan.costmodel.blocks.operations import separates_experts
from trainplan.costmodel.blocks.parts import Shapes
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import group
from trainplan.costmodel.model import expert_hidden
from trainplan.costmodel.routing import Loads, loads


@dataclass(frozen=True, slots=True)
class Routing:
    """Rows of one layer of experts, by layout."""

    moe: MoeSpec
    local_tokens: FloatColumn
    """Tokens one rank routes."""
    rows: FloatColumn
    """Rows the experts of the fullest rank see."""
    sent_rows: FloatColumn
    """Rows that the tokens of one rank make, with those of its etp peers."""
    local_experts: FloatColumn
    loads: Loads
    """Of the fullest rank and node, over those of balanced tokens."""
    hidden: int
    """Width of a row."""

    def in_chunks(self, chunks: int) -> Routing:
        """Rows of one of so many chunks of the tokens."""
        parts = (self.local_tokens, self.rows, self.sent_rows)
        tokens, rows, sent = (one / chunks for one in parts)
        return replace(self, local_tokens=tokens, rows=rows, sent_rows=sent)


def routing_of(shapes: Shapes) -> Routing:
    """Rows of the layer that the shapes are of. Source: as `costmodel.routing.loads`."""
    moe, table = shapes.job.model.moe, shapes.table
    assert moe is not None
    local = shapes.tokens / shapes.residual_shards
    spread = loads(shapes.job, table, group(shapes.machine, table.ep, table.etp).nodes)
    balanced = local * moe.rows_per_token * table.etp
    return Routing(
        moe=moe,
        local_tokens=local,
        rows=balanced * spread.fullest,
        sent_rows=balanced,
        local_experts=np.maximum(1.0, moe.num_experts / table.ep),
        loads=spread,
        hidden=expert_hidden(shapes.job.model),
    )


def saved_bytes(shapes: Shapes, routing: Routing) -> tuple[FloatColumn, FloatColumn]:
    """Bytes kept inside the MoE half, and the part that `moe_act` drops.

    Per routed row: permuted input, output (for the gradient of its routing weight) and the MLP
    inside; per token the router's probabilities. Where the weight multiplies inside the expert the
    output is not needed; without a gate the weighted activation is a tensor of its own, as where
    it is weighted by an operation of its own, and so are clamped inputs of a gated unit.
    Pages of a stash are there whatever the rows.
    Source: as the dense MLP; Megatron Core `moe/experts.py`, `activation_func_with_probs`;
    `RuntimeTraits.stash_factor`.
    """
    moe = routing.moe
    cut = moe.moe_intermediate_size / shapes.table.etp
    tensors = activation_tensors(shapes.job.model, shapes.traits.autograd)
    low, weighted = shapes.keeps_cast_inputs, shapes.traits.footprint.weighted_experts
    share = 0.75 if low else 1.0
    separate = shapes.traits.autograd.weighted_separately or not shapes.job.model.gated_mlp
    tensors += weighted and separate
    hidden = shapes.input_bytes + (0 if weighted else shapes.storage)
    spared = narrow_inputs(shapes) * (shapes.storage - BYTES_FP8)
    row = hidden * routing.hidden + (share * tensors * shapes.storage - spared) * cut
    router = 2 * BYTES_FP32 * shapes.tokens / shapes.residual_shards * moe.num_experts
    router = router + router_bytes_kept(shapes, routing.rows)
    clamped = 2.0 * (shapes.job.model.swiglu_limit is not None and separates_experts(shapes))
    inputs = clamped * routing.rows * shapes.storage * cut
    activation = routing.rows * shapes.storage * cut * share
    paged = shapes.traits.stash_factor
    return paged * (routing.rows * row + inputs) + router, paged * (activation + inputs)

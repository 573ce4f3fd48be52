"""Grouped products of the experts of a rank, and the memory-bound kernels around them."""

import numpy as np

from trainplan.costmodel.blocks.activations import narrowing_bytes
from trainplan.costmodel.blocks.feed_forward.exchange import (
    copies_sent,
    gathered_tokens,
    gathers_tokens,
    narrow_bytes,
    sends_once,
)
from trainplan.costmodel.blocks.feed_forward.rows import Routing
from trainplan.costmodel.blocks.operations import clamp_operations, expert_bias_operations
from trainplan.costmodel.blocks.parts import Shapes
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.kernels import (
    ForwardBackward,
    Product,
    elementwise_seconds,
    forward_rate,
    grouped_rate,
    product_seconds,
    sum_columns,
)
from trainplan.costmodel.machine import GemmRate

ROUTER_KERNELS = 8
"""Small kernels of router and top-k. Source: trace of a Megatron Core MoE layer."""
ROUTER_BYTES = 16
"""Bytes moved per token and expert by softmax, top-k and the load-balancing loss.

Source: logits and probabilities are fp32, 4 bytes each, and each is written once and read once.
"""

PERMUTE_PASSES, SORT_PASSES = 2, 4
"""Passes over the routed rows: tokens are copied to the rows of their experts and rows added up to
tokens again, one pass each beside the tokens themselves. Where a rank has several experts, rows of
a plain all-to-all are sorted by expert before the products and back after them; what comes once to
a rank is copied to its rows there.

Source: derived; Megatron Core `moe/token_dispatcher.py`, `permute` and `sort_chunks_by_idxs`;
_DeepepManager, get_permuted_hidden_states_by_experts.
"""


def expert_products(shapes: Shapes, routing: Routing) -> ForwardBackward:
    """Grouped products of all local experts, of each chunk of the tokens anew."""
    machine, chunks = shapes.machine, shapes.traits.experts.chunks
    if chunks > 1:
        routing = routing.in_chunks(chunks)
    rate = grouped_rate(machine.linear, weight_gradient=False)
    weight_rate = grouped_rate(machine.linear, weight_gradient=True)
    h = np.zeros(shapes.size) + routing.hidden
    cut = routing.moe.moe_intermediate_size / shapes.table.etp
    ups = 2 if shapes.job.model.gated_mlp else 1
    m = routing.rows + machine.constants.expert_extra_rows * routing.local_experts
    extra = machine.constants.expert_extra_rows_weight_gradient
    m_weights = routing.rows + extra * routing.local_experts

    def grouped(curve: GemmRate, rows: FloatColumn, n: FloatColumn, k: FloatColumn) -> FloatColumn:
        return product_seconds(machine, curve, Product(rows, n, k), shapes.storage)

    shapes_nk = [(ups * cut, h), (h, cut)]
    first = grouped_rate(forward_rate(machine.linear), weight_gradient=False)
    forward = sum_columns(grouped(first, m, n, k) for n, k in shapes_nk)
    inputs = sum_columns(grouped(rate, m, k, n) for n, k in shapes_nk)
    weight = sum_columns(grouped(weight_rate, m_weights, n, k) for n, k in shapes_nk)
    if chunks > 1:
        forward, inputs, weight = (chunks * one for one in (forward, inputs, weight))
    return ForwardBackward(forward, inputs + weight, weight)


def expert_kernels(
    shapes: Shapes, routing: Routing
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Seconds of the expert activation alone, and of all memory-bound kernels in both passes.

    Source: memory-bound kernels take their bytes over the bandwidth: two or three tensors of the
    activation, ROUTER_BYTES, those of `permutation_seconds` and of `costmodel.blocks.operations`.
    """
    moe, machine = routing.moe, shapes.machine
    tensors = 3 if shapes.job.model.gated_mlp else 2
    outputs = routing.rows * moe.moe_intermediate_size / shapes.table.etp
    clamps = clamp_operations(shapes, outputs)
    biases = expert_bias_operations(shapes, routing.rows, routing.local_experts)
    routed = ROUTER_BYTES * shapes.tokens / shapes.residual_shards * moe.num_experts
    each = tensors * shapes.storage + narrowing_bytes(shapes)
    activation = elementwise_seconds(machine, each * outputs)
    kernels = activation + elementwise_seconds(machine, routed)
    kernels = kernels + ROUTER_KERNELS * machine.constants.launch_seconds
    there, back = permutation_seconds(shapes, routing)
    forward = kernels + there + clamps.forward + biases.forward
    backward = machine.constants.elementwise_backward * kernels + back
    return activation + clamps.forward, forward, backward + clamps.backward + biases.backward


def permutation_seconds(shapes: Shapes, routing: Routing) -> tuple[FloatColumn, FloatColumn]:
    """Seconds of sorting rows by expert and back, in both passes.

    Measured kernels take the bytes they move, which are the same backward; what a rank sends is not
    more on the fullest one. Of gathered tokens all are read, summed up, and cast where their
    weights are wider. Tokens that travel in fewer bits are cast before.
    Source: PERMUTE_PASSES and SORT_PASSES; Megatron Core `moe/token_dispatcher.py`,
    MoEAllGatherTokenDispatcher (combine_preprocess, token_combine).
    """
    machine, speed = shapes.machine, shapes.machine.permute_bytes_per_second

    def routed(rows: FloatColumn) -> FloatColumn:
        return rows / shapes.table.etp * shapes.storage * routing.hidden

    several, once = routing.local_experts > 1, sends_once(shapes)
    gathers, tokens = gathers_tokens(shapes), gathered_tokens(shapes, routing)
    sorts = np.where(several & ~(once | gathers), SORT_PASSES, 0)
    copies = (
        np.where(several & once, copies_sent(shapes, routing), 1.0) / routing.moe.rows_per_token
    )
    passes = PERMUTE_PASSES + sorts + 2 * copies
    if gathers.any():
        wide = 1 + shapes.traits.experts.routing_weight_bytes / shapes.storage
        each = 2 + (wide > 2) * wide
        summed = shapes.table.etp * (PERMUTE_PASSES + each * tokens / routing.rows)
        passes = np.where(gathers, summed, passes)
    if narrow := narrow_bytes(shapes):
        cast = (shapes.storage + narrow) * routing.local_tokens * routing.hidden
        passes = passes + cast / routed(routing.rows)
    forward = elementwise_seconds(machine, passes * routed(routing.rows))
    backward = machine.constants.elementwise_backward * forward
    if speed is None:
        return forward, backward
    sent, received = routed(routing.sent_rows), routed(routing.rows)
    measured = (passes * sent + sorts * (received - sent)) / speed
    share = machine.shares.streams.level
    return ((1 - share) * forward + share * measured, (1 - share) * backward + share * measured)

"""The mixture-of-experts half of a layer: router, dispatch, experts, combine.

`rows` are what experts see and keep, `products` what a rank computes of them, `exchange` how they
get to their experts and back.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.blocks.activations import with_output_gate
from trainplan.costmodel.blocks.exchanges import chunked_exchanges, overlapped_with_shared
from trainplan.costmodel.blocks.feed_forward.exchange import dispatch_and_combine, routing_maps
from trainplan.costmodel.blocks.feed_forward.mlp import mlp_part
from trainplan.costmodel.blocks.feed_forward.products import expert_kernels, expert_products
from trainplan.costmodel.blocks.feed_forward.rows import Routing, routing_of, saved_bytes
from trainplan.costmodel.blocks.parts import Module, Part, Shapes, pass_seconds
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.kernels import ForwardBackward, Product, linear_seconds, product_seconds


def moe_part(shapes: Shapes) -> Part:
    """Router, routed experts, shared experts and their traffic.

    Source: Megatron Core MoE, arXiv:2504.14960, section 3 (parallel folding): experts have their
    own (etp, ep) mapping; tokens are cut over tp by sequence parallelism before dispatch.
    """
    routing, chunks = routing_of(shapes), shapes.traits.experts.chunks
    experts = expert_products(shapes, routing)
    exchange, gather = dispatch_and_combine(shapes, routing.in_chunks(chunks))
    maps = routing_maps(shapes, routing)
    router = _router(shapes, routing)
    activation, passes, passes_backward = expert_kernels(shapes, routing)
    between = ForwardBackward(
        experts.forward + passes, experts.backward + passes_backward, experts.weight
    )
    sent = back = 2 * (exchange + gather)
    if chunks > 1:
        added = chunked_exchanges(shapes, exchange, gather, between)
        sent, back = added.forward, added.backward
    forward = pass_seconds(
        shapes.size, gemm=experts.forward + router, elementwise=passes, ep_comm=sent + maps
    )
    backward = pass_seconds(
        shapes.size, gemm=experts.backward + 2 * router, elementwise=passes_backward, ep_comm=back
    )
    inner, act_bytes = saved_bytes(shapes, routing)
    act = Module("moe_act", activation, act_bytes, inside="moe")
    tail = pass_seconds(shapes.size)
    part = Part(forward, backward, experts.weight + router, inner, (act,), tail, between)
    if routing.moe.latent_size:
        part += _latent(shapes, routing, routing.moe.latent_size)
    width = routing.moe.shared_expert_intermediate_size
    if width:
        shared = mlp_part(shapes, width, "shared_experts", inside="moe")
        part = overlapped_with_shared(shapes, part, shared, exchange) + with_output_gate(
            shapes, shared
        )
    whole = Module("moe", part.forward.total, part.saved_bytes)
    return replace(part, modules=(*part.modules, whole), tail=tail)


def _router(shapes: Shapes, routing: Routing) -> FloatColumn:
    """Seconds of the router's product, which stays in bf16.

    Source: Megatron Core router.py, fp32 logits.
    """
    zero = np.zeros(shapes.size)
    product = Product(
        routing.local_tokens, zero + routing.moe.num_experts, zero + shapes.job.model.hidden_size
    )
    return product_seconds(shapes.machine, shapes.machine.half, product, BYTES_FP32)


def _latent(shapes: Shapes, routing: Routing, width: int) -> Part:
    """Projections of a rank's own tokens to the width of the experts and back.

    Kept: what comes back from the experts.
    Source: Megatron Core @d98e8a64 `moe/moe_layer.py`, fc1_latent_proj and fc2_latent_proj.
    """
    tokens, zero = routing.local_tokens, np.zeros(shapes.size)
    wide, narrow = zero + shapes.job.model.hidden_size, zero + width
    machine, moe = shapes.machine, routing.moe
    products = linear_seconds(
        machine,
        machine.half if moe.wide_latent else shapes.linear,
        [Product(tokens, narrow, wide), Product(tokens, wide, narrow)],
        shapes.gradient_bytes,
    )
    element = shapes.storage if moe.wide_latent else shapes.input_bytes
    forward = pass_seconds(shapes.size, gemm=products.forward)
    backward = pass_seconds(shapes.size, gemm=products.backward)
    kept, tail = element * tokens * width, pass_seconds(shapes.size)
    return Part(forward, backward, products.weight, kept, (), tail)

"""The mixture-of-experts half of a layer: router, dispatch, experts, combine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodel.blocks.mlp import mlp_part
from costmodel.blocks.parts import Module, Part, Shapes, pass_seconds
from costmodel.comm.collectives import (
    INTER_NODE_ALPHA,
    bus_factor,
    collective_seconds,
    fit_column,
)
from costmodel.comm.topology import group
from costmodel.compute import (
    ELEMENTWISE_BACKWARD,
    LAUNCH_SECONDS,
    ForwardBackward,
    Product,
    elementwise_seconds,
    product_seconds,
)
from costmodel.machine import OPERATIONS
from costmodel.spec.model import MoeSpec
from costmodel.table import FloatColumn
from costmodel.units import BYTES_BF16, BYTES_FP32

EXPERT_EXTRA_ROWS = 286
"""Rows a grouped product costs beyond its own, per local expert: the time to load its weights.

Source: fitted, docs/explanation/constants.md; equals the machine balance (peak / bandwidth).
"""
EXPERT_EXTRA_ROWS_WEIGHT_GRADIENT = 600
"""As above for the weight gradient, which writes fp32. Source: as above."""
PERMUTE_PASSES = 4
"""Passes over the routed rows by permutation, un-permutation and weighting. Source: as above."""
ROUTER_KERNELS = 8
"""Small kernels of router and top-k. Source: trace of a Megatron Core MoE layer."""
ROUTER_BYTES = 16
"""Bytes moved per token and expert by softmax, top-k and the load-balancing loss. Source: derived:
fp32 logits and probabilities, each read and written."""
ALLTOALL_ALPHA = 25e-6
"""Start of an all-to-all with its host-side split sizes. Source: fitted, as above."""
ALLTOALL_EFFICIENCY = 0.8
"""Of the fitted all-to-all bus bandwidth, unequal splits reach 0.75 to 0.9. Source: as above."""


@dataclass(frozen=True, slots=True)
class _Routing:
    moe: MoeSpec
    local_tokens: FloatColumn
    """Tokens one rank routes."""
    rows: FloatColumn
    """Rows the experts of one rank see: balanced routing."""
    local_experts: FloatColumn


def moe_part(shapes: Shapes) -> Part:
    """Router, routed experts, shared experts and their traffic.

    Source: Megatron Core MoE, arXiv:2504.14960, section 3 (parallel folding): experts have their
    own (etp, ep) mapping; tokens are cut over tp by sequence parallelism before dispatch.
    """
    routing = _routing(shapes)
    experts = _experts(shapes, routing)
    transfer = _dispatch_and_combine(shapes, routing) * (1 - shapes.traits.expert_overlap)
    router = _router(shapes, routing)
    activation, passes = _elementwise(shapes, routing)
    forward = pass_seconds(
        shapes.size, gemm=experts.forward + router, elementwise=passes, ep_comm=transfer
    )
    backward = pass_seconds(
        shapes.size,
        gemm=experts.backward + 2 * router,
        elementwise=ELEMENTWISE_BACKWARD * passes,
        ep_comm=transfer,
    )
    inner, act_bytes = _saved(shapes, routing)
    act = Module("moe_act", activation, act_bytes, inside="moe")
    part = Part(forward, backward, inner, (act,))
    width = routing.moe.shared_expert_intermediate_size
    if width:
        part += mlp_part(shapes, width, "shared_experts", inside="moe")
    return replace(
        part, modules=(*part.modules, Module("moe", part.forward.total, part.saved_bytes))
    )


def _routing(shapes: Shapes) -> _Routing:
    moe, table = shapes.job.model.moe, shapes.table
    assert moe is not None
    local = shapes.tokens / shapes.residual_shards
    return _Routing(
        moe=moe,
        local_tokens=local,
        rows=local * moe.num_experts_per_tok * table.etp,
        local_experts=np.maximum(1.0, moe.num_experts / table.ep),
    )


def _router(shapes: Shapes, routing: _Routing) -> FloatColumn:
    """Seconds of the router's product, which stays in bf16.

    Source: Megatron Core router.py, fp32 logits.
    """
    zero = np.zeros(shapes.size)
    product = Product(
        routing.local_tokens,
        zero + routing.moe.num_experts,
        zero + shapes.job.model.hidden_size,
    )
    return product_seconds(shapes.machine, shapes.machine.bf16, product, BYTES_FP32)


def _experts(shapes: Shapes, routing: _Routing) -> ForwardBackward:
    """Grouped products of all local experts."""
    machine, rate = shapes.machine, shapes.machine.linear
    h = np.zeros(shapes.size) + shapes.job.model.hidden_size
    cut = routing.moe.moe_intermediate_size / shapes.table.etp
    ups = 2 if shapes.job.model.gated_mlp else 1
    m = routing.rows + EXPERT_EXTRA_ROWS * routing.local_experts
    m_weights = routing.rows + EXPERT_EXTRA_ROWS_WEIGHT_GRADIENT * routing.local_experts

    def grouped(rows: FloatColumn, n: FloatColumn, k: FloatColumn, output: int) -> FloatColumn:
        return product_seconds(machine, rate, Product(rows, n, k), output)

    shapes_nk = [(ups * cut, h), (h, cut)]
    forward = sum(grouped(m, n, k, BYTES_BF16) for n, k in shapes_nk)
    backward = sum(
        grouped(m, k, n, BYTES_BF16) + grouped(m_weights, n, k, BYTES_BF16) for n, k in shapes_nk
    )
    return ForwardBackward(np.asarray(forward), np.asarray(backward))


def _elementwise(shapes: Shapes, routing: _Routing) -> tuple[FloatColumn, FloatColumn]:
    """Seconds of the expert activation alone, and of all memory-bound passes with it.

    Source: derived; bytes moved by PERMUTE_PASSES and ROUTER_BYTES.
    """
    moe, machine = routing.moe, shapes.machine
    tensors = 3 if shapes.job.model.gated_mlp else 2
    act = tensors * BYTES_BF16 * routing.rows * moe.moe_intermediate_size / shapes.table.etp
    permuted = PERMUTE_PASSES * BYTES_BF16 * routing.rows * shapes.job.model.hidden_size
    routed = ROUTER_BYTES * shapes.tokens / shapes.residual_shards * moe.num_experts
    activation = elementwise_seconds(machine, act)
    passes = activation + elementwise_seconds(machine, permuted / shapes.table.etp + routed)
    return activation, passes + ROUTER_KERNELS * LAUNCH_SECONDS


def _dispatch_and_combine(shapes: Shapes, routing: _Routing) -> FloatColumn:
    """Seconds of the two all-to-alls of one pass, with the gathers over etp.

    Source: derived; every token goes to top-k experts, (nodes - 1) / nodes of them elsewhere.
    """
    machine, table = shapes.machine, shapes.table
    links = group(machine, table.ep, table.etp)
    sent = BYTES_BF16 * routing.local_tokens * routing.moe.num_experts_per_tok
    sent = sent * shapes.job.model.hidden_size
    fits = machine.bus_bytes_per_second[OPERATIONS.index("alltoall")]
    bus = fits[fit_column(links)] * ALLTOALL_EFFICIENCY
    inside = sent * bus_factor("alltoall", table.ep) / bus
    per_nic = links.nic_bytes_per_second / links.inside
    outside = sent * (links.nodes - 1) / links.nodes / per_nic
    alpha = ALLTOALL_ALPHA + (links.nodes > 1) * (INTER_NODE_ALPHA + links.fabric_seconds)
    exchange = np.where(table.ep > 1, alpha + np.maximum(inside, outside), 0.0)
    one = np.ones(shapes.size, dtype=np.int64)
    gather = collective_seconds(
        machine, "all_gather", sent * table.etp, group(machine, table.etp, one)
    )
    return 2 * (exchange + gather)


def _saved(shapes: Shapes, routing: _Routing) -> tuple[FloatColumn, FloatColumn]:
    """Bytes kept inside the MoE half, and the part that `moe_act` drops.

    Per routed row: permuted input and output (4 h) and the MLP inside; per token the router's
    probabilities. Source: as the dense MLP; agrees with Megatron CI MoE runs within 5 %.
    """
    moe = routing.moe
    cut = moe.moe_intermediate_size / shapes.table.etp
    tensors = 3 if shapes.job.model.gated_mlp else 2
    low = shapes.machine.linear.element_bytes < BYTES_BF16
    share = 0.75 if low else 1.0
    row = 2 * BYTES_BF16 * shapes.job.model.hidden_size + share * tensors * BYTES_BF16 * cut
    router = 2 * BYTES_FP32 * shapes.tokens / shapes.residual_shards * moe.num_experts
    return routing.rows * row + router, routing.rows * BYTES_BF16 * cut * share

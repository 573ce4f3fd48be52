"""The mixture-of-experts half of a layer: router, dispatch, experts, combine."""

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.base import BYTES_FP8, BYTES_FP32
from trainplan.costmodel.blocks.activations import (
    activation_tensors,
    narrow_inputs,
    narrowing_bytes,
    router_bytes_kept,
    with_output_gate,
)
from trainplan.costmodel.blocks.exchanges import overlapped_with_shared
from trainplan.costmodel.blocks.feed_forward.mlp import mlp_part
from trainplan.costmodel.blocks.operations import (
    clamp_operations,
    expert_bias_operations,
    separates_experts,
)
from trainplan.costmodel.blocks.parts import Module, Part, Shapes, pass_seconds
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.comm import (
    bus_factor,
    collective_seconds,
    exchange_speed,
    fit_column,
    group,
    proxied_seconds,
)
from trainplan.costmodel.kernels import (
    ForwardBackward,
    Product,
    elementwise_seconds,
    forward_rate,
    grouped_rate,
    linear_seconds,
    product_seconds,
    sum_columns,
)
from trainplan.costmodel.machine import OPERATIONS, GemmRate
from trainplan.costmodel.model import expert_hidden
from trainplan.costmodel.routing import Loads, destinations_in_groups, loads

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


@dataclass(frozen=True, slots=True)
class _Routing:
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


def moe_part(shapes: Shapes) -> Part:
    """Router, routed experts, shared experts and their traffic.

    Source: Megatron Core MoE, arXiv:2504.14960, section 3 (parallel folding): experts have their
    own (etp, ep) mapping; tokens are cut over tp by sequence parallelism before dispatch.
    """
    routing = _routing(shapes)
    experts = _experts(shapes, routing)
    exposed = shapes.machine.constants.expert_overlap_exposed
    hidden = exposed if shapes.traits.experts.overlaps else 1.0
    exchange, gather = _dispatch_or_combine(shapes, routing)
    transfer = 2 * (exchange + gather) * hidden
    maps = _routing_maps(shapes, routing) * hidden
    router = _router(shapes, routing)
    activation, passes, passes_backward = _elementwise(shapes, routing)
    forward = pass_seconds(
        shapes.size, gemm=experts.forward + router, elementwise=passes, ep_comm=transfer + maps
    )
    backward = pass_seconds(
        shapes.size,
        gemm=experts.backward + 2 * router,
        elementwise=passes_backward,
        ep_comm=transfer,
    )
    inner, act_bytes = _saved(shapes, routing)
    act = Module("moe_act", activation, act_bytes, inside="moe")
    tail = pass_seconds(shapes.size)
    part = Part(forward, backward, experts.weight + router, inner, (act,), tail)
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


def _routing(shapes: Shapes) -> _Routing:
    moe, table = shapes.job.model.moe, shapes.table
    assert moe is not None
    local = shapes.tokens / shapes.residual_shards
    spread = loads(shapes.job, table, group(shapes.machine, table.ep, table.etp).nodes)
    balanced = local * moe.rows_per_token * table.etp
    return _Routing(
        moe=moe,
        local_tokens=local,
        rows=balanced * spread.fullest,
        sent_rows=balanced,
        local_experts=np.maximum(1.0, moe.num_experts / table.ep),
        loads=spread,
        hidden=expert_hidden(shapes.job.model),
    )


def _router(shapes: Shapes, routing: _Routing) -> FloatColumn:
    """Seconds of the router's product, which stays in bf16.

    Source: Megatron Core router.py, fp32 logits.
    """
    zero = np.zeros(shapes.size)
    product = Product(
        routing.local_tokens, zero + routing.moe.num_experts, zero + shapes.job.model.hidden_size
    )
    return product_seconds(shapes.machine, shapes.machine.half, product, BYTES_FP32)


def _latent(shapes: Shapes, routing: _Routing, width: int) -> Part:
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


def _experts(shapes: Shapes, routing: _Routing) -> ForwardBackward:
    """Grouped products of all local experts."""
    machine = shapes.machine
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
    return ForwardBackward(forward, inputs + weight, weight)


def _elementwise(shapes: Shapes, routing: _Routing) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Seconds of the expert activation alone, and of all memory-bound kernels in both passes.

    Source: memory-bound kernels take their bytes over the bandwidth: two or three tensors of the
    activation, ROUTER_BYTES, those of `_permutation` and of `costmodel.blocks.operations`.
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
    there, back = _permutation(shapes, routing)
    forward = kernels + there + clamps.forward + biases.forward
    backward = machine.constants.elementwise_backward * kernels + back
    return activation + clamps.forward, forward, backward + clamps.backward + biases.backward


def _permutation(shapes: Shapes, routing: _Routing) -> tuple[FloatColumn, FloatColumn]:
    """Seconds of sorting rows by expert and back, in both passes.

    Measured kernels take the bytes they move, which are the same backward; what a rank sends is not
    more on the fullest one.
    Source: PERMUTE_PASSES and SORT_PASSES.
    """
    machine, speed = shapes.machine, shapes.machine.permute_bytes_per_second

    def routed(rows: FloatColumn) -> FloatColumn:
        return rows / shapes.table.etp * shapes.storage * routing.hidden

    several, once = routing.local_experts > 1, _sends_once(shapes)
    sorts = np.where(several & ~once, SORT_PASSES, 0)
    copies = np.where(several & once, _copies(shapes, routing), 1.0) / routing.moe.rows_per_token
    passes = PERMUTE_PASSES + sorts + 2 * copies
    forward = elementwise_seconds(machine, passes * routed(routing.rows))
    backward = machine.constants.elementwise_backward * forward
    if speed is None:
        return forward, backward
    sent, received = routed(routing.sent_rows), routed(routing.rows)
    measured = (passes * sent + sorts * (received - sent)) / speed
    share = machine.shares.streams.level
    return ((1 - share) * forward + share * measured, (1 - share) * backward + share * measured)


def _sends_once(shapes: Shapes) -> BoolColumn:
    """Does the dispatcher send a token once to each rank that needs it?"""
    experts, table = shapes.traits.experts, shapes.table
    nodes = group(shapes.machine, table.ep, table.etp).nodes
    inside, across = (x != "alltoall" for x in (experts.dispatcher, experts.dispatcher_across))
    return np.asarray(np.where(nodes > 1, across, inside) & (table.ep > 1))


def _copies(shapes: Shapes, routing: _Routing) -> FloatColumn:
    """Copies of a token that such a dispatcher sends, one for each rank."""
    return destinations_in_groups(routing.moe, shapes.table.ep, routing.loads.fullest)


def _dispatch_or_combine(shapes: Shapes, routing: _Routing) -> tuple[FloatColumn, FloatColumn]:
    """Seconds of one of the two exchanges of a pass, and of its gather over etp.

    Source: derived; every token goes to top-k experts at random. A plain all-to-all sends a copy
    for each of them, DeepEP and HybridEP one for each distinct rank, and between nodes one for
    each distinct node (DeepSeek-V3, arXiv:2412.19437, section 3.2.2), whose tensor ranks are
    destinations too: Megatron-LM @d98e8a64 `moe/token_dispatcher.py:1837`, tp_ep_group; it sends to
    the rank of its own place there, so stays on its rail of a rail-only network. The rank or
    node that receives most ends last; of a group that a border cuts, so does its smaller part.
    """
    machine, table, constants = shapes.machine, shapes.table, shapes.machine.constants
    links = group(machine, table.ep, table.etp)
    moe, loads = routing.moe, routing.loads
    copies = moe.rows_per_token * loads.fullest
    token = shapes.storage * routing.local_tokens * routing.hidden
    once = _sends_once(shapes)
    ranks = np.where(once, _copies(shapes, routing), copies)
    nodes = np.where(once, destinations_in_groups(moe, links.nodes, loads.fullest_node), copies)
    fits = machine.bus_bytes_per_second[OPERATIONS.index("alltoall")]
    bus = fits[fit_column(links)] * constants.alltoall_efficiency
    inside = token * ranks * bus_factor("alltoall", table.ep) / bus
    leaving = nodes * (1 - links.inside / links.size)
    leaving = np.where(once, np.minimum(leaving, links.nodes - 1), leaving)
    outside = token * leaving / exchange_speed(machine, links)
    outside = outside + token * leaving * links.forward_seconds_per_byte * ~once
    if machine.by_proxies and shapes.traits.experts.dispatcher_across != "alltoall":
        row = float(shapes.storage * routing.hidden)
        proxy, messages = shapes.job.options.deepep_proxy, routing.local_tokens * leaving
        outside = proxied_seconds(machine, links, messages, row, proxy)
    outside = outside * (links.nodes > 1)
    across = constants.inter_node_alpha + links.fabric_seconds
    alpha = constants.alltoall_alpha + (links.nodes > 1) * across
    exchange = np.where(table.ep > 1, alpha + np.maximum(inside, outside), 0.0)
    one = np.ones(shapes.size, dtype=np.int64)
    sent = token * ranks * table.etp
    gather = collective_seconds(machine, "all_gather", sent, group(machine, table.etp, one))
    return exchange, gather


def _routing_maps(shapes: Shapes, routing: _Routing) -> FloatColumn:
    """Seconds in which ranks tell each other which experts their tokens go to.

    HybridEP gathers a byte for every token and expert of all ranks in every forward pass; the
    backward pass knows them still. The other dispatchers exchange counts.
    Source: deepseek-ai/DeepEP @94a9f8f6 `csrc/hybrid_ep/executor/executor.cu`,
    allgather_routing_map.
    """
    machine, table, experts = shapes.machine, shapes.table, shapes.traits.experts
    links = group(machine, table.ep, table.etp)
    gathered = routing.local_tokens * routing.moe.num_experts * table.ep
    across, inside = experts.dispatcher_across == "hybridep", experts.dispatcher == "hybridep"
    maps = np.where(links.nodes > 1, across, inside) * gathered
    return np.where(maps > 0, collective_seconds(machine, "all_gather", maps, links), 0.0)


def _saved(shapes: Shapes, routing: _Routing) -> tuple[FloatColumn, FloatColumn]:
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

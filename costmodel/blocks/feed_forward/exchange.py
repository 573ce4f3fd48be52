"""How rows get to their experts and back: what each dispatcher sends, and how long that takes."""

import numpy as np

from trainplan.costmodel.base import BYTES_FP8, BYTES_FP32
from trainplan.costmodel.blocks.exchanges import dispatched_by
from trainplan.costmodel.blocks.feed_forward.rows import Routing
from trainplan.costmodel.blocks.parts import Shapes
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.comm import (
    Group,
    bus_factor,
    collective_seconds,
    exchange_speed,
    fit_column,
    group,
    proxied_seconds,
    start_growth,
)
from trainplan.costmodel.kernels import elementwise_seconds, sum_columns
from trainplan.costmodel.machine import OPERATIONS
from trainplan.costmodel.routing import destinations_in_groups

SCALED = {"fp8": 128, "mxfp8": 32}
"""Numbers of a token that share a scale, of 4 bytes in fp8 and of one in mxfp8.

Source: deepseek-ai/DeepEP @dd758ca `tests/utils.py`, per_token_cast_to_fp8; OCP Microscaling
Formats 1.0, section 5.
"""
STRIDED_COPIES = 2
"""Of all a rank sends, one before each step of an exchange in two.

Source: microsoft/tutel @82af7aad `custom/custom_kernel.cpp`, nccl_all_to_all_2d_async.
"""


def runs_on(shapes: Shapes, *dispatchers: str) -> BoolColumn:
    """Which rows send their tokens by one of these?"""
    return dispatched_by(shapes, dispatchers) & (shapes.table.ep * shapes.table.etp > 1)


def sends_once(shapes: Shapes) -> BoolColumn:
    """Does the dispatcher send a token once to each rank that needs it?"""
    return runs_on(shapes, *shapes.traits.experts.SENDS_ONCE)


def copies_sent(shapes: Shapes, routing: Routing) -> FloatColumn:
    """Copies of a token that such a dispatcher sends, one for each rank."""
    return destinations_in_groups(routing.moe, shapes.table.ep, routing.loads.fullest)


def narrow_bytes(shapes: Shapes) -> float | None:
    """Bytes of a number of a token on its way to experts, with its share of a scale; null: as kept.

    Source: `SCALED`.
    """
    kind = shapes.job.options.moe_dispatch_dtype
    if kind is None or kind not in SCALED:
        return None
    return BYTES_FP8 + (BYTES_FP32 if kind == "fp8" else 1) / SCALED[kind]


def dispatch_and_combine(shapes: Shapes, routing: Routing) -> tuple[FloatColumn, FloatColumn]:
    """Seconds of half of both exchanges of a pass, and of half of their gathers over etp.

    Tokens on their way there, and in the backward pass gradients on theirs, may be narrower than
    what comes back. An all-gather takes all tokens to all ranks, and a reduce-scatter adds up what
    they return, as wide as a routing weight; both are one exchange over etp too.
    Source: DeepSeek-V3, arXiv:2412.19437, section 3.3.3; NVIDIA/Megatron-LM @d98e8a64
    `moe/token_dispatcher.py`, MoEAllGatherTokenDispatcher.
    """
    exchange, gather = _one_way(shapes, routing, shapes.storage)
    if narrow := narrow_bytes(shapes):
        there = _one_way(shapes, routing, narrow)
        exchange, gather = ((a + b) / 2 for a, b in zip(there, (exchange, gather), strict=True))
    gathers = gathers_tokens(shapes)
    if not gathers.any():
        return exchange, gather
    return np.where(gathers, _gathered(shapes, routing), exchange), np.where(gathers, 0.0, gather)


def gathers_tokens(shapes: Shapes) -> BoolColumn:
    """Do all expert ranks get all tokens?"""
    return runs_on(shapes, "allgather")


def gathered_tokens(shapes: Shapes, routing: Routing) -> FloatColumn:
    """Tokens of all ranks of a group, those of etp among them."""
    return routing.local_tokens * shapes.table.ep * shapes.table.etp


def _gathered(shapes: Shapes, routing: Routing) -> FloatColumn:
    """Seconds of half of an all-gather of tokens and their weights, and of the sum of results.

    Source: as `dispatch_and_combine`; over the group of tensor and expert ranks.
    """
    machine, table = shapes.machine, shapes.table
    links = group(machine, table.ep * table.etp, np.ones(shapes.size, dtype=np.int64))
    tokens = gathered_tokens(shapes, routing)
    weight = shapes.traits.experts.routing_weight_bytes
    weights = tokens * weight * routing.moe.num_experts
    return sum_columns(
        collective_seconds(machine, operation, tensor, links) / 2
        for operation, tensor in (
            ("all_gather", tokens * shapes.storage * routing.hidden),
            ("all_gather", weights),
            ("reduce_scatter", tokens * weight * routing.hidden),
        )
    )


def _one_way(shapes: Shapes, routing: Routing, element: float) -> tuple[FloatColumn, FloatColumn]:
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
    token = element * routing.local_tokens * routing.hidden
    once = sends_once(shapes)
    ranks = np.where(once, copies_sent(shapes, routing), copies)
    nodes = np.where(once, destinations_in_groups(moe, links.nodes, loads.fullest_node), copies)
    fits = machine.bus_bytes_per_second[OPERATIONS.index("alltoall")]
    bus = fits[fit_column(links)] * constants.alltoall_efficiency
    inside = token * ranks * bus_factor("alltoall", table.ep) / bus
    leaving = nodes * (1 - links.inside / links.size)
    leaving = np.where(once, np.minimum(leaving, links.nodes - 1), leaving)
    outside = token * leaving / exchange_speed(machine, links)
    two_steps = runs_on(shapes, "hierarchical")
    outside = outside + token * leaving * links.forward_seconds_per_byte * ~(once | two_steps)
    if machine.by_proxies and shapes.traits.experts.sends_once_across:
        row = float(element * routing.hidden)
        proxy, messages = shapes.job.options.deepep_proxy, routing.local_tokens * leaving
        outside = proxied_seconds(machine, links, messages, row, proxy)
    outside = outside * (links.nodes > 1)
    across = constants.inter_node_alpha + links.fabric_seconds
    alpha = constants.alltoall_alpha + (links.nodes > 1) * across
    if shapes.traits.experts.starts_by_rank:
        alpha = alpha * start_growth(table.ep)
    exchange = np.where(table.ep > 1, alpha + np.maximum(inside, outside), 0.0)
    if two_steps.any():
        steps = _in_two_steps(shapes, links, token * ranks, token * ranks / bus, outside)
        exchange = np.where(two_steps & (links.nodes > 1), steps, exchange)
    one = np.ones(shapes.size, dtype=np.int64)
    sent = token * ranks * table.etp
    gather = collective_seconds(machine, "all_gather", sent, group(machine, table.etp, one))
    return exchange, gather


def _in_two_steps(
    shapes: Shapes, links: Group, sent: FloatColumn, wired: FloatColumn, outside: FloatColumn
) -> FloatColumn:
    """Seconds of an exchange inside nodes, then of one between ranks of equal place.

    `wired` are the seconds of all that is sent on the links of a node, `outside` those of what
    leaves it: as many bytes in larger messages, to as many ranks as there are nodes. So it wins
    below S = (a (1 + (e - 8) / 16) - a_g - a_n) / ((g - 1) / g / b + 4 / m) bytes a rank sends,
    with starts a of e ranks, a_g of the g of a node and a_n of one rank of each node, and links
    and memory of b and m bytes a second, where the wire between nodes is what both wait for.
    Source: Hwang et al., Tutel, arXiv:2206.03382, section 3.4 (2DH); Nie et al., HetuMoE,
    arXiv:2203.14685, section 3.2; STRIDED_COPIES; `start_growth`.
    """
    constants = shapes.machine.constants
    first = constants.alltoall_alpha * start_growth(links.inside)
    across = constants.alltoall_alpha + constants.inter_node_alpha + links.fabric_seconds
    copies = STRIDED_COPIES * elementwise_seconds(shapes.machine, 2 * sent)
    inner = first + wired * bus_factor("alltoall", links.inside)
    return copies + inner + across * start_growth(links.nodes) + outside


def routing_maps(shapes: Shapes, routing: Routing) -> FloatColumn:
    """Seconds of the exchange of which experts tokens go to.

    HybridEP and an all-gather gather a byte for every token and expert of all ranks in every
    forward pass; the backward pass knows them still. NCCL's, which runs on kernels of HybridEP, is
    taken to. The other dispatchers exchange counts.
    Source: deepseek-ai/DeepEP @94a9f8f6 `csrc/hybrid_ep/executor/executor.cu`,
    allgather_routing_map; Megatron-LM @d98e8a64 `moe/token_dispatcher.py`, token_dispatch of
    MoEAllGatherTokenDispatcher, and `_NCCLEPManager`.
    """
    machine, table = shapes.machine, shapes.table
    links = group(machine, table.ep * table.etp, np.ones(shapes.size, dtype=np.int64))
    gathered = gathered_tokens(shapes, routing) * routing.moe.num_experts
    maps = runs_on(shapes, "hybridep", "ncclep", "allgather") * gathered
    return np.where(maps > 0, collective_seconds(machine, "all_gather", maps, links), 0.0)

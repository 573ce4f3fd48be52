"""How rows get to their experts and back: what each dispatcher sends, and how long that takes."""

import numpy as np

from trainplan.costmodel.blocks.feed_forward.rows import Routing
from trainplan.costmodel.blocks.parts import Shapes
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.comm import (
    bus_factor,
    collective_seconds,
    exchange_speed,
    fit_column,
    group,
    proxied_seconds,
)
from trainplan.costmodel.machine import OPERATIONS
from trainplan.costmodel.routing import destinations_in_groups


def sends_once(shapes: Shapes) -> BoolColumn:
    """Does the dispatcher send a token once to each rank that needs it?"""
    experts, table = shapes.traits.experts, shapes.table
    nodes = group(shapes.machine, table.ep, table.etp).nodes
    inside, across = (x != "alltoall" for x in (experts.dispatcher, experts.dispatcher_across))
    return np.asarray(np.where(nodes > 1, across, inside) & (table.ep > 1))


def copies_sent(shapes: Shapes, routing: Routing) -> FloatColumn:
    """Copies of a token that such a dispatcher sends, one for each rank."""
    return destinations_in_groups(routing.moe, shapes.table.ep, routing.loads.fullest)


def dispatch_or_combine(shapes: Shapes, routing: Routing) -> tuple[FloatColumn, FloatColumn]:
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
    once = sends_once(shapes)
    ranks = np.where(once, copies_sent(shapes, routing), copies)
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


def routing_maps(shapes: Shapes, routing: Routing) -> FloatColumn:
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

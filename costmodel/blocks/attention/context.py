"""What context parallelism sends: keys and values to all, round a ring, or heads for sequence."""

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.blocks.attention.key_values import key_value_width
from trainplan.costmodel.blocks.parts import Shapes
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.comm import Group, collective_seconds, group, link_speed
from trainplan.costmodel.kernels import ForwardBackward, elementwise_seconds
from trainplan.costmodel.model import query_columns, value_columns
from trainplan.costmodel.shards import context_ways


def context_exchange(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """What context parallelism sends and cannot hide, whichever way of exchange."""
    exchange = shapes.traits.communication.context_exchange
    heads, gathered = context_ways(shapes.job.model, exchange, shapes.table)
    gather = _gathered if shapes.traits.communication.gathers_query_heads else _gathered_groups
    ring, nested = ~heads & ~gathered, shapes.table.cp_heads > 1
    ways = [(heads, _heads_for_sequence), (gathered, gather), (ring & ~nested, _ring)]
    ways.append((nested, _heads_in_ring))
    forward, backward = np.zeros((2, shapes.size))
    for rows, way in ways:
        if rows.any():
            seconds = way(shapes, core)
            forward = np.where(rows, seconds.forward, forward)
            backward = np.where(rows, seconds.backward, backward)
    return ForwardBackward(forward, backward, np.zeros(shapes.size))


def core_pieces(shapes: Shapes) -> tuple[IntColumn, IntColumn]:
    """Calls of the attention core in a pass, and the context ranks that its heads are cut over.

    A ring calls once a step; whole sequences take one call; of gathered keys and values each of a
    rank's two chunks sees as many as the mask lets it.
    Source: Transformer Engine @d0067d0d `context_parallel.py`, AttnFuncWithCPAndKVAllGather; torch
    as `_gathered`, where each chunk takes one.
    """
    table, exchange = shapes.table, shapes.traits.communication.context_exchange
    heads, gathered = context_ways(shapes.job.model, exchange, table)
    twice = gathered & (not shapes.traits.communication.gathers_query_heads)
    calls = np.where(heads, 1, np.where(twice, 2, table.cp // table.cp_heads))
    return calls, np.where(heads, table.cp, table.cp_heads)


def _heads_for_sequence(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """All-to-all of queries, keys and values before the core and of its output after it.

    Two exchanges wait for their start each: the three before the core run behind one another.
    Source: Jacobs et al., DeepSpeed Ulysses, arXiv:2309.14509, section 3.2; backward sends the
    gradients of the same tensors; Transformer Engine @d0067d0d `context_parallel.py`,
    flash_attn_a2a_communicate.
    """
    seconds = _exchanged(shapes, shapes.table.cp)
    return ForwardBackward(seconds, seconds, np.zeros(shapes.size))


def _exchanged(shapes: Shapes, ranks: IntColumn) -> FloatColumn:
    """Seconds of both exchanges over so many neighbouring context ranks.

    Source: as `_heads_for_sequence`.
    """
    model, table = shapes.job.model, shapes.table
    links = group(shapes.machine, ranks, table.tp * table.gtp)
    seconds = np.zeros(shapes.size)
    before = query_columns(model) / table.tp + key_value_width(shapes)
    for columns in (before, value_columns(model) / table.tp):
        sent = shapes.storage * shapes.tokens * columns
        seconds += collective_seconds(shapes.machine, "alltoall", sent, links)
    return seconds


def _heads_in_ring(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """Heads exchanged for sequence among neighbours, and a ring of the ranks at their distance.

    Behind the exchange a rank has a longer piece of fewer heads, so as many bytes travel the ring
    in each of its fewer steps.
    Source: Fang and Zhao, USP, arXiv:2405.07719; Megatron-LM `parallel_state.py`,
    create_hierarchical_groups: the first level has neighbours; Transformer Engine @d0067d0d
    `context_parallel.py`, AttnFuncWithCPAndKVP2P with cp_group_a2a.
    """
    table = shapes.table
    exchange = _exchanged(shapes, table.cp_heads)
    stride = table.tp * table.gtp * table.cp_heads
    ring = _rotated(shapes, core, table.cp // table.cp_heads, stride)
    return ForwardBackward(exchange + ring.forward, exchange + ring.backward, ring.weight)


def _ring(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """Ring exchange of keys and values, hidden behind the attention of the previous chunk.

    Source: Liu et al., Ring Attention, arXiv:2310.01889, section 3; backward also sends gradients.
    """
    return _rotated(shapes, core, shapes.table.cp, shapes.table.tp * shapes.table.gtp)


def _rotated(
    shapes: Shapes, core: ForwardBackward, ranks: IntColumn, stride: IntColumn
) -> ForwardBackward:
    """A ring of so many ranks at a distance. Source: as `_ring`."""
    ring = group(shapes.machine, ranks, stride)
    step = _step_seconds(shapes, ring, shapes.storage * key_value_width(shapes))
    rounds = ranks.astype(np.float64) - 1
    return ForwardBackward(
        rounds * np.maximum(0.0, step - core.forward / ranks),
        rounds * np.maximum(0.0, 2 * step - core.backward / ranks),
        np.zeros(shapes.size),
    )


def _gathered_groups(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """Keys and values gathered before the core, each by a collective that nothing runs beside.

    Backward gathers them again and reduce-scatters their gradients.
    Source: Transformer Engine @d0067d0d `context_parallel.py`, AttnFuncWithCPAndKVAllGather.
    """
    table, machine = shapes.table, shapes.machine
    links = group(machine, table.cp, table.tp * table.gtp)
    keys, values = _gathered_bytes(shapes)
    gather = collective_seconds(machine, "all_gather", keys, links)
    gather = gather + collective_seconds(machine, "all_gather", values, links)
    scatter = collective_seconds(machine, "reduce_scatter", keys, links)
    scatter = scatter + collective_seconds(machine, "reduce_scatter", values, links)
    return ForwardBackward(gather, gather + scatter, np.zeros(shapes.size))


def _gathered_bytes(shapes: Shapes) -> tuple[FloatColumn, FloatColumn]:
    """Keys and values of the whole sequence on one rank, as stored.

    Source: a rank stores its share of the sequence and gathers those of all `cp` ranks, as wide as
    keys and values are together; latent attention has values of a width of their own.
    """
    model, table = shapes.job.model, shapes.table
    both = key_value_width(shapes)
    values = value_columns(model) / table.tp if model.mla else both / 2
    whole = shapes.storage * shapes.tokens * table.cp
    return whole * (both - values), whole * values


def _gathered(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """All keys and values gathered at once beside the attention of the rank's own chunk.

    They have as many heads as the queries by then. The backward pass gathers them again and sends
    their gradients, summed in fp32, round a ring: each message but the last runs beside the
    attention of the next chunk.
    Source: torch.distributed.tensor.experimental `_attention.py` of December 2024,
    `_AllGatherRotater` and `_templated_ring_attention_backward`; torchtitan `model.py`, repeat_kv.
    """
    table, model = shapes.table, shapes.job.model
    ring = group(shapes.machine, table.cp, table.tp * table.gtp)
    columns = query_columns(model) + value_columns(model)
    gathered = shapes.storage * shapes.tokens * columns / table.tp * table.cp
    gather = collective_seconds(shapes.machine, "all_gather", gathered, ring)
    step = _step_seconds(shapes, ring, BYTES_FP32 * columns / table.tp) * (table.cp > 1)
    rounds = table.cp.astype(np.float64) - 1
    forward, backward = core.forward / table.cp, core.backward / table.cp
    sums = rounds * np.maximum(0.0, step - backward) + step
    return ForwardBackward(
        np.maximum(0.0, gather - forward),
        np.maximum(0.0, gather - backward) + sums,
        np.zeros(shapes.size),
    )


def context_sums(shapes: Shapes) -> ForwardBackward:
    """Passes over memory that gathered keys and values take beside the core.

    Source: `_chunk_sums` and `_reorders`.
    """
    exchange = shapes.traits.communication.context_exchange
    _, gathered = context_ways(shapes.job.model, exchange, shapes.table)
    moved = (
        _chunk_sums(shapes)
        if shapes.traits.communication.gathers_query_heads
        else _reorders(shapes)
    )
    forward, backward = (elementwise_seconds(shapes.machine, gathered * one) for one in moved)
    return ForwardBackward(forward, backward, np.zeros(shapes.size))


def _chunk_sums(shapes: Shapes) -> tuple[FloatColumn, FloatColumn]:
    """Bytes moved in both passes by sums over the chunks of a gathered context in fp32.

    Forward the output of the core; backward the gradients of queries, keys and values, of which the
    latter two are also packed into a message. A sum reads the new part and itself and is written.
    Source: derived; torch.distributed.tensor.experimental `_attention.py`, `_SDPAMerger` and
    convert_to_f32, on by default.
    """
    each = shapes.table.cp * shapes.tokens / shapes.table.tp
    added, packed = 2 * BYTES_FP32 + shapes.storage, 2 * BYTES_FP32
    queries, values = query_columns(shapes.job.model), value_columns(shapes.job.model)
    gradients = added * queries + (added + packed) * (queries + values)
    return each * added * values, each * gradients


def _reorders(shapes: Shapes) -> tuple[FloatColumn, FloatColumn]:
    """Bytes moved in both passes around keys and values that were gathered.

    Their chunks are put in order (read, written); backward again, their gradients start from zeros
    (written), take the parts of both chunks (two read, one written) and are put back in order.
    Source: derived; Transformer Engine @d0067d0d `context_parallel.py`, torch.index_select,
    torch.zeros and add_ in AttnFuncWithCPAndKVAllGather.
    """
    whole = sum(_gathered_bytes(shapes), start=np.zeros(shapes.size))
    return 2.0 * whole, 8.0 * whole


def _step_seconds(shapes: Shapes, ring: Group, token_bytes: FloatColumn) -> FloatColumn:
    """One message to the next rank of the ring, so many bytes of each token.

    Source: in each step a rank sends to the next one of the ring alone, so one message leaves a
    domain, by one NIC: what the group has, over its members in a domain.
    """
    machine = shapes.machine
    link = link_speed(machine, ring.stride)
    one_nic = ring.nic_bytes_per_second / ring.inside
    wire = np.where(ring.nodes > 1, np.minimum(link, one_nic), link)
    sent = token_bytes * shapes.tokens
    return np.asarray(machine.constants.p2p_alpha + ring.fabric_seconds + sent / wire)

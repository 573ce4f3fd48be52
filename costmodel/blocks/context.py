"""What context parallelism sends: keys and values to all, round a ring, or heads for sequence."""

from __future__ import annotations

import numpy as np

from costmodel.blocks.parts import Shapes
from costmodel.comm.collectives import collective_seconds
from costmodel.comm.topology import Group, group, link_speed
from costmodel.compute import ForwardBackward, elementwise_seconds
from costmodel.params import query_columns, value_columns
from costmodel.spec.model import ModelSpec
from costmodel.table import FloatColumn
from costmodel.units import BYTES_FP32


def key_value_columns(model: ModelSpec) -> int:
    """Width of the keys and values together, all heads, as attention reads them."""
    if model.mla:
        per_head = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim
        return model.num_attention_heads * per_head
    return 2 * model.num_key_value_heads * model.head_dim


def context_exchange(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """What context parallelism sends and cannot hide, whichever way of exchange."""
    ways = {"a2a": _heads_for_sequence, "all_gather": _gathered, "p2p": _ring}
    return ways[shapes.traits.context_exchange](shapes, core)


def _heads_for_sequence(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """All-to-all of queries, keys and values before the core and of its output after it.

    Source: Jacobs et al., DeepSpeed Ulysses, arXiv:2309.14509, section 3.2; backward sends the
    gradients of the same tensors.
    """
    model, table = shapes.job.model, shapes.table
    columns = query_columns(model) + key_value_columns(model) + value_columns(model)
    sent = shapes.storage * shapes.tokens * columns / table.tp
    links = group(shapes.machine, table.cp, table.tp)
    seconds = collective_seconds(shapes.machine, "alltoall", sent, links)
    return ForwardBackward(seconds, seconds, np.zeros(shapes.size))


def _ring(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """Ring exchange of keys and values, hidden behind the attention of the previous chunk.

    Source: Liu et al., Ring Attention, arXiv:2310.01889, section 3; backward also sends gradients.
    """
    table = shapes.table
    ring = group(shapes.machine, table.cp, table.tp)
    columns = key_value_columns(shapes.job.model)
    step = _step_seconds(shapes, ring, shapes.storage * columns)
    rounds = table.cp.astype(np.float64) - 1
    return ForwardBackward(
        rounds * np.maximum(0.0, step - core.forward / table.cp),
        rounds * np.maximum(0.0, 2 * step - core.backward / table.cp),
        np.zeros(shapes.size),
    )


def _gathered(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """All keys and values gathered at once beside the attention of the rank's own chunk.

    They have as many heads as the queries by then. The backward pass gathers them again and sends
    their gradients, summed in fp32, round a ring: each message but the last runs beside the
    attention of the next chunk.
    Source: torch.distributed.tensor.experimental `_attention.py` of December 2024,
    `_AllGatherRotater` and `_templated_ring_attention_backward`; torchtitan `model.py`, repeat_kv.
    """
    table, model = shapes.table, shapes.job.model
    ring = group(shapes.machine, table.cp, table.tp)
    columns = query_columns(model) + value_columns(model)
    gathered = shapes.storage * shapes.tokens * columns / table.tp * table.cp
    gather = collective_seconds(shapes.machine, "all_gather", gathered, ring)
    step = _step_seconds(shapes, ring, BYTES_FP32 * columns) * (table.cp > 1)
    rounds = table.cp.astype(np.float64) - 1
    forward, backward = core.forward / table.cp, core.backward / table.cp
    sums = rounds * np.maximum(0.0, step - backward) + step
    return ForwardBackward(
        np.maximum(0.0, gather - forward),
        np.maximum(0.0, gather - backward) + sums,
        np.zeros(shapes.size),
    )


def context_sums(shapes: Shapes) -> ForwardBackward:
    """Sums over the chunks of a gathered context in fp32, a pass over memory for each chunk.

    Forward the output of the core; backward the gradients of queries, keys and values, of which the
    latter two are also packed into a message. A sum reads the new part and itself and is written.
    Source: derived; torch.distributed.tensor.experimental `_attention.py`, `_SDPAMerger` and
    convert_to_f32, on by default.
    """
    table, model = shapes.table, shapes.job.model
    chunks = table.cp * (table.cp > 1) * (shapes.traits.context_exchange == "all_gather")
    each = chunks * shapes.tokens / table.tp
    added, packed = 2 * BYTES_FP32 + shapes.storage, 2 * BYTES_FP32
    queries, values = query_columns(model), value_columns(model)
    gradients = added * queries + (added + packed) * (queries + values)
    return ForwardBackward(
        elementwise_seconds(shapes.machine, each * added * values),
        elementwise_seconds(shapes.machine, each * gradients),
        np.zeros(shapes.size),
    )


def _step_seconds(shapes: Shapes, ring: Group, token_bytes: float) -> FloatColumn:
    """One message to the next rank of the ring, so many bytes of each token over all heads.

    Source: derived; one message leaves a domain per step, by one NIC.
    """
    machine = shapes.machine
    link = link_speed(machine, ring.stride)
    one_nic = ring.nic_bytes_per_second / ring.inside
    wire = np.where(ring.nodes > 1, np.minimum(link, one_nic), link)
    sent = token_bytes * shapes.tokens / shapes.table.tp
    return np.asarray(machine.constants.p2p_alpha + ring.fabric_seconds + sent / wire)

"""Which links each axis of a layout uses, and how many bytes it puts on them in a step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.blocks import key_value_columns
from trainplan.costmodel.calibration import NOTHING, Measured, context_for
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import Group, bus_factor, group, pipeline_neighbour
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, num_microbatches
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory import held_params, rank_params
from trainplan.costmodel.model import query_columns, value_columns
from trainplan.costmodel.pipeline import ranks_of
from trainplan.costmodel.runtimes import runtime
from trainplan.costmodel.traffic import (
    engine_sent_bytes,
    gradient_message_bytes,
    sent_bytes,
    stages_of,
)

OPERATIONS = {"all_to_all": "alltoall", "send": "p2p"}
"""Operations by their names in `comm.collectives`, where these are others."""
RING = "ring"
"""Messages to the next rank of a group."""
PLAIN = ("full_attention", "sliding_attention")
"""Mixers whose bytes are counted."""


@dataclass(frozen=True, slots=True)
class AxisLinks:
    """One axis: who talks to whom, over what."""

    axis: str
    """tp, cp, ep, etp, pp, dp or expert dp; hpz, and of gradients in few bits dp in nodes and dp of
    nodes."""
    size: int
    """Ranks of a group."""
    stride: int
    """Distance of neighbours in ranks."""
    inside: int
    """Members of a group in one scale-up domain, such as a node."""
    domains: float
    """Domains that a group spans."""
    inside_bytes: float | None
    """That a GPU of the busiest pipeline rank sends over the links of its domain in a step; null:
    not counted."""
    outside_bytes: float | None
    """As above, over its network adapter."""


def axis_links(job: Job, layout: Layout, measured: Measured = NOTHING) -> tuple[AxisLinks, ...]:
    """Every axis whose groups have two ranks or more.

    Bytes are counted of Megatron's own parallelism, as `plan verify` does; of weights and gradients
    under ZeRO-0 and ZeRO-1, in the widths of the runtime.

    Source: as `collective_rate`: a ring passes a tensor on by all adapters of its members in a
    domain together, an all-to-all sends to each rank its own part, and of messages between stages
    those leave that `pipeline_neighbour` names.
    """
    on = context_for(job, measured)
    machine, sent = on.machine, _sent(on, layout)
    groups = _groups(job, layout, machine)
    return tuple(
        _counted_of(machine, one, sent[one.axis]) if one.axis in sent else one for one in groups
    )


def _groups(job: Job, layout: Layout, machine: Machine) -> Iterator[AxisLinks]:
    """Source: Megatron-LM `parallel_state.py`, as `StateRanks.wires` and `comm.topology`."""
    experts = max(1, layout.tp * layout.cp * layout.dp // (layout.etp * layout.ep))
    moe, node = job.model.moe is not None, machine.gpus_per_node
    hops = node if layout.zero_stage == 3 and job.options.gradient_bits else 0
    nodes = max(1, layout.dp * layout.cp // node)
    sizes = {
        "tp": (layout.tp, 1),
        "cp": (layout.cp, layout.tp * layout.gtp),
        "gtp": (layout.gtp, layout.tp),
        "egtp": (layout.egtp if moe else 1, layout.etp * layout.ep),
        "ep": (layout.ep if moe else 1, layout.etp),
        "etp": (layout.etp if moe else 1, 1),
        "pp": (layout.pp, layout.tp * layout.cp * layout.dp),
        "dp": (layout.dp * layout.cp // layout.gtp, layout.tp * layout.gtp),
        "expert dp": (
            experts // layout.egtp if moe else 1,
            layout.etp * layout.ep * layout.egtp,
        ),
        "hpz": (layout.hpz, layout.tp),
        "dp in nodes": (hops if nodes > 1 else 1, 1),
        "dp of nodes": (nodes if hops else 1, node),
    }
    for axis, (size, stride) in sizes.items():
        if size > 1:
            links = _group(machine, size, stride)
            yield AxisLinks(
                axis=axis,
                size=size,
                stride=stride,
                inside=int(links.inside[0]),
                domains=float(links.nodes[0]),
                inside_bytes=None,
                outside_bytes=None,
            )


def _group(machine: Machine, size: int, stride: int) -> Group:
    return group(machine, np.array([size]), np.array([stride]))


def _counted_of(machine: Machine, found: AxisLinks, sent: Mapping[str, float]) -> AxisLinks:
    """With the bytes on both tiers."""
    inside = outside = 0.0
    for operation, whole in sent.items():
        near, far = _shares(machine, found, OPERATIONS.get(operation, operation))
        inside, outside = inside + near * whole, outside + far * whole
    return replace(found, inside_bytes=inside, outside_bytes=outside)


def _shares(machine: Machine, found: AxisLinks, operation: str) -> tuple[float, float]:
    """Bytes on both tiers for each byte of the buffer. Source: as `axis_links`."""
    size, inside = found.size, found.inside
    if operation == RING:
        crossing = 1 / inside if found.domains > 1 else 0.0
        return 1 - crossing, crossing
    if operation == "p2p":
        pp, stride = np.array([size]), np.array([found.stride])
        crossing = float(pipeline_neighbour(machine, pp, stride)[0])
        return 1 - crossing, crossing
    if operation == "alltoall":
        return (inside - 1) / size, (size - inside) / size
    factor = float(bus_factor(operation, np.array([size]))[0])
    if found.domains == 1:
        return factor, 0.0
    return factor * (inside > 1), factor / inside


def _sent(on: Context, layout: Layout) -> Mapping[str, Mapping[str, float]]:
    """Bytes of the buffers of the busiest pipeline rank, by axis and operation."""
    counted = list(_counted(on, layout))
    if not counted:
        return {}
    found: dict[str, dict[str, float]] = {axis: {} for axis in counted}
    for one in _of_ranks(on, layout):
        for (axis, operation), value in one.items():
            if axis in found:
                found[axis][operation] = max(value, found[axis].get(operation, 0.0))
    return found


def _counted(on: Context, layout: Layout) -> Iterator[str]:
    """Axes whose bytes are known.

    Source: `sent_bytes`, which `plan verify` holds against megatron-core; latent attention and
    mixers that carry a state exchange more in tensor groups, towers and adapters are not in it, nor
    dispatchers that send a token once to a node.
    """
    job, model = on.job, on.job.model
    if model.tower or model.trained:
        return
    if layout.zero_stage < 3 or layout.recompute != "full":
        whole = layout.dp_replicate == 1 and layout.shard is None
        yield from ("dp", "expert dp") if whole else ()
        if on.traits.sharding.zero_plus_plus:
            yield from ("hpz", "dp in nodes", "dp of nodes")
    if not runtime(job.runtime).on_megatron_core:
        return
    yield from ("pp", "etp")
    if on.traits.gradients.accumulated_bytes == BYTES_FP32:
        yield from ("gtp", "egtp")
    experts = on.traits.experts
    if {experts.dispatcher, experts.dispatcher_across} == {"alltoall"}:
        yield "ep"
    plain = all(kind.mixer in PLAIN and kind.mla is None for kind in model.kinds)
    if not plain or model.num_nextn_predict_layers:
        return
    yield "tp"
    windows = any(kind.sliding_window or kind.attention_sinks for kind in model.kinds)
    if layout.cp_heads == 1 and layout.recompute != "selective" and not windows:
        yield "cp"


def _of_ranks(on: Context, layout: Layout) -> Iterator[Mapping[tuple[str, str], float]]:
    """Of every pipeline rank."""
    job, table = on.job, LayoutTable.of([layout])
    ranks, params = ranks_of(job, table, merged=False), held_params(job, table)
    nothing = np.zeros(1)
    inner = replace(params, embedding=nothing, head=nothing, trained=None)
    whole, within = rank_params(ranks, params), rank_params(ranks, inner)
    for rank in range(layout.pp):
        yield {
            **sent_bytes(job, layout, rank, {}),
            **_context(on, layout, rank),
            **_states(on, layout, "dp", _both(whole.shared, within.shared, rank)),
            **_states(on, layout, "expert dp", _both(whole.expert, within.expert, rank)),
        }


def _both(whole: FloatColumn, within: FloatColumn, rank: int) -> tuple[float, float]:
    """Of one pipeline rank; experts of a dense model are one number for all."""
    rows = (np.broadcast_to(one, (max(len(one), rank + 1), 1)) for one in (whole, within))
    first, second = (float(one[rank, 0]) for one in rows)
    return first, second


def _states(
    on: Context, layout: Layout, axis: str, params: tuple[float, float]
) -> Mapping[tuple[str, str], float]:
    """Gradients and weights over the replicas; `params` are all of a rank, and those of its layers.

    Source: `step_traffic`, `sharded_traffic`.
    """
    machine, traits = on.machine, on.traits
    stage, often = layout.zero_stage, num_microbatches(on.job, layout)
    whole, within = params
    sharding = traits.sharding
    gradient = gradient_message_bytes(machine, traits) * whole
    if stage == 0:
        return {(axis, "all_reduce"): gradient}
    summed = stage < 3 and sharding.reduces_whole_gradients
    reduction = "all_reduce" if summed else "reduce_scatter"
    if stage == 1 or (stage == 2 and not sharding.gathers_every_pass):
        width = sharding.weight_message_bytes or machine.storage_bytes
        times = 1 if stage == 1 else often
        return {(axis, reduction): times * gradient, (axis, "all_gather"): width * whole}
    again = within if sharding.ends_at_root else whole
    if sharding.zero_plus_plus and axis == "dp" and stage == 3:
        return engine_sent_bytes(on, layout, whole)
    gathered = machine.storage_bytes * (whole + again * (stage == 3))
    return {(axis, reduction): often * gradient, (axis, "all_gather"): often * gathered}


def _context(on: Context, layout: Layout, rank: int) -> Mapping[tuple[str, str], float]:
    """Keys and values, or heads, of all layers of a pipeline rank.

    Source: `costmodel.blocks.attention.context`, `_rotated`, `_gathered_groups` and `_exchanged`.
    """
    cp, job, training = layout.cp, on.job, on.job.training
    if cp == 1:
        return {}
    tokens = layout.micro_batch_size * training.seq_length // cp
    element = training.storage_bytes * tokens * num_microbatches(job, layout) / layout.tp
    forward = backward = 0.0
    for stage in stages_of(job, layout, rank):
        forward += len(stage.moe_layers) + stage.repeated
        backward += len(stage.moe_layers)
    copies = max(1.0, layout.tp / job.model.num_key_value_heads)
    keys = element * key_value_columns(job.model) * copies
    way = on.traits.communication.context_exchange
    if way == "p2p":
        return {("cp", RING): (cp - 1) * keys * (forward + 2 * backward)}
    if way == "all_gather":
        return {
            ("cp", "all_gather"): cp * keys * (forward + backward),
            ("cp", "reduce_scatter"): cp * keys * backward,
        }
    outer = element * (query_columns(job.model) + value_columns(job.model))
    return {("cp", "all_to_all"): (keys + outer) * (forward + backward)}

"""Exchanges of experts that overlap what a layer computes and what the host launches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.blocks.host import Launches
from trainplan.costmodel.blocks.lanes import (
    Computed,
    chunked_seconds,
    exposed_of_pair,
    exposed_seconds,
    share_alone,
)
from trainplan.costmodel.blocks.parts import Part, PassSeconds, Shapes
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.comm import group
from trainplan.costmodel.kernels import ForwardBackward, sum_columns
from trainplan.costmodel.layouts import num_microbatches


def waits_for_exchange(shapes: Shapes) -> BoolColumn:
    """Is an exchange waited for whatever the host still launches?

    Where proxies of the host post it, launches wait with it.
    Source: pairs of runs on EFA, aws-q30-* of examples/accuracy/twins.jsonl: UCCL and NVSHMEM
    lengthen a layer by as much for each token at micro batch 1, where launches set the pace, as
    at 4.
    """
    across = group(shapes.machine, shapes.table.ep, shapes.table.etp).nodes > 1
    return np.asarray(across & shapes.machine.by_proxies)


def dispatched_by(shapes: Shapes, dispatchers: Collection[str]) -> BoolColumn:
    """Which rows send tokens to experts by one of these, inside a domain or across several?"""
    experts, table = shapes.traits.experts, shapes.table
    inside, across = (x in dispatchers for x in (experts.dispatcher, experts.dispatcher_across))
    nodes = group(shapes.machine, table.ep, table.etp).nodes
    return np.asarray(np.where(nodes > 1, across, inside))


def overlapped_columns(candidates: Candidates) -> tuple[IntColumn, ...]:
    """Columns that passes without an opposite one depend on, where exchanges overlap one."""
    if not candidates.traits.experts.overlaps or candidates.job.model.moe is None:
        return ()
    table = candidates.table
    return table.pp, table.vpp, num_microbatches(candidates.job, table)


@dataclass(frozen=True, slots=True)
class Slots:
    """Where compute of a layer stands between its exchanges: shares of its passes."""

    forward: FloatColumn
    """Of the forward pass, between dispatch and combine."""
    backward: FloatColumn
    """Of the backward pass, likewise, with weight gradients."""
    weight: FloatColumn
    """Of the backward pass, weight gradients there."""
    other_weight: FloatColumn
    """Of the backward pass, those of the mixer and all else."""


def slots_of(part: Part) -> Slots | None:
    """Shares of a part's passes between dispatch and combine; null: it has no exchange."""
    if part.experts is None:
        return None
    experts, forward, backward = part.experts, part.forward, part.backward
    ahead, behind = forward.total - forward.ep_comm, backward.total - backward.ep_comm
    return Slots(
        experts.forward / ahead,
        experts.backward / behind,
        experts.weight / behind,
        (part.weight - experts.weight) / behind,
    )


def with_exposed(shapes: Shapes, part: Part, slots: Slots | None, host: Launches) -> Part:
    """A layer whose exchanges overlap the opposite pass of another micro batch.

    Each exchange overlaps what is computed meanwhile; passes that run alone hide nothing. Where
    launches wait for exchanges, both passes hide as much as launches last, if they last longer, and
    compute that is slowed first fills what the GPU idles then. What both exchanges leave is half of
    either, as far as it has one: neither pass gets longer than it is without overlap, nor shorter
    where more is sent.
    Source: `exposed_of_pair`, `share_alone` and `waits_for_exchange`.
    """
    if slots is None or not shapes.traits.experts.overlaps:
        return part
    table, forward, backward = shapes.table, part.forward, part.backward
    there, back, waits = forward.ep_comm, backward.ep_comm, waits_for_exchange(shapes)
    busy_ahead, busy_behind = forward.total - there, backward.total - back
    ahead = np.maximum(waits * host.forward_seconds, busy_ahead)
    behind = np.maximum(waits * host.backward_seconds, busy_behind)
    idle = (ahead + behind - busy_ahead - busy_behind) / np.maximum(there + back, 1e-30)
    contention = np.maximum(0.0, shapes.machine.constants.expert_overlap_contention - idle)
    delayed = shapes.traits.experts.delays_weights

    def left(one: FloatColumn, weight: FloatColumn, other: FloatColumn) -> FloatColumn:
        own = weight * delayed
        computed = Computed(one - own, own, other)
        return exposed_of_pair(there / 2, back / 2, computed, contention)

    exposed = left(slots.backward * behind, slots.weight * behind, slots.forward * ahead)
    exposed = exposed + left(
        (1 - slots.backward) * behind, slots.other_weight * behind, (1 - slots.forward) * ahead
    )
    alone = share_alone(table.pp, table.vpp, num_microbatches(shapes.job, table))
    own = np.maximum(np.minimum(back, exposed / 2), exposed - there)
    return replace(
        part,
        forward=replace(forward, ep_comm=(1 - alone) * (exposed - own) + alone * there),
        backward=replace(backward, ep_comm=(1 - alone) * own + alone * back),
    )


def chunked_exchanges(
    shapes: Shapes, exchange: FloatColumn, gather: FloatColumn, experts: ForwardBackward
) -> ForwardBackward:
    """Seconds that dispatch and combine in chunks add to the experts between them, in both passes.

    `exchange` and its `gather` over etp are those of one chunk. While chunks are sent, the experts
    of others lose `expert_overlap_contention` of their seconds.
    Source: `chunked_seconds`; Pan et al., FSMoE, arXiv:2501.10714, whose gathers inside nodes are a
    lane of their own.
    """
    traits, contention = shapes.traits.experts, shapes.machine.constants.expert_overlap_contention
    chunks, wire = traits.chunks, exchange + gather
    slowed = contention * (1 - 1 / chunks) * 2 * wire

    def left(compute: FloatColumn) -> FloatColumn:
        between = ("gpu", compute / chunks + slowed)
        outer, inner = ("wire", exchange), ("links", gather)
        stages: tuple[tuple[str, FloatColumn], ...] = (outer, inner, between, inner, outer)
        if not traits.gathers_on_own_lane:
            stages = ("wire", wire), between, ("wire", wire)
        return np.maximum(0.0, chunked_seconds(chunks, stages) - compute)

    return ForwardBackward(left(experts.forward), left(experts.backward), experts.weight)


def overlapped_with_shared(shapes: Shapes, part: Part, shared: Part, exchange: FloatColumn) -> Part:
    """Routed experts whose exchanges overlap the shared ones, in both passes.

    Forward the first product and its activation overlap the dispatch, the last product the
    combine; backward the same in turn. `exchange` are the seconds of one of the two.
    Source: `exposed_seconds`; Megatron-LM @d98e8a64 `moe/token_dispatcher.py`, token_dispatch and
    token_combine, and `moe/shared_experts.py`, whose sequence numbers keep that order backward.
    """
    if not shapes.traits.experts.overlaps_shared:
        return part
    ups = 2 if shapes.job.model.gated_mlp else 1
    contention = shapes.machine.constants.expert_overlap_contention

    def left(routed: PassSeconds, own: PassSeconds) -> PassSeconds:
        products, half = own.gemm / (ups + 1), own.tp_comm / 2
        across = (ups * products + own.elementwise + half, products + half)
        exposed = sum_columns(exposed_seconds(exchange, one, contention) for one in across)
        return replace(routed, ep_comm=routed.ep_comm - 2 * exchange + exposed)

    forward, backward = left(part.forward, shared.forward), left(part.backward, shared.backward)
    return replace(part, forward=forward, backward=backward)

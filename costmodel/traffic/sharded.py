"""Traffic of sharded weights and gradients in the passes of a micro batch: ZeRO-2 and ZeRO-3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.comm import only
from trainplan.costmodel.layouts import num_microbatches
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory import RankParams
from trainplan.costmodel.pipeline import COLUMNS, LayerSeconds
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.traffic.copies import copies_of
from trainplan.costmodel.traffic.data_parallel import (
    Wires,
    both_wires,
    by_groups,
    gradient_message_bytes,
)
from trainplan.costmodel.traffic.zero_plus_plus import SortRates, zero_plus_plus

TINY = 1e-30
"""Seconds below which there are none."""


@dataclass(frozen=True, slots=True)
class PassTraffic:
    """Seconds on the wire in each pass of one micro batch, hidden or not."""

    forward: FloatColumn
    """That may overlap the forward pass, as in `backward`."""
    backward: FloatColumn
    forward_alone: FloatColumn
    """That overlaps nothing, as in `backward_alone`."""
    backward_alone: FloatColumn
    recompute_forward: FloatColumn
    """Where the forward pass is repeated in full, before the backward pass."""
    slowing: FloatColumn
    """Of compute it overlaps, over that of traffic on all rails. Source: `Wires.rails`."""

    def take(self, rows: IntColumn) -> PassTraffic:
        """Some of the rows."""
        return PassTraffic(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


@dataclass(frozen=True, slots=True)
class Unit:
    """A block whose states are gathered and reduced together."""

    params: RankParams
    """On one rank."""
    matrices: int = 1
    """That may go one by one."""
    root: bool = False
    """Gathered before all others, kept between both passes, and reduced behind all others."""
    trained: RankParams | None = None
    """Those of them that are trained; null: all."""


def sharded_traffic(
    candidates: Candidates, units: Sequence[Unit], *, later: bool = False
) -> list[PassTraffic]:
    """Gathers and reductions of each unit's states under ZeRO-2 and ZeRO-3.

    ZeRO-3 gathers weights in both passes; both stages reduce gradients in every backward pass.
    `later`: of the micro batches behind the first of a step, which second copies make different
    from it.
    Source: Rajbhandari et al., arXiv:1910.02054, section 7; `Sharding.gathers_every_pass`,
    `Sharding.reduces_whole_gradients`, `Sharding.overlaps_gradients`; `Fetches`.
    """
    machine, traits = candidates.machine, candidates.traits
    one, key, some = by_groups(candidates)
    second, third = some.table.zero_stage == 2, some.table.zero_stage == 3
    whole, either = second & traits.sharding.reduces_whole_gradients, second | third
    rates = [_of_sort(some, wires, either=either, whole=whole) for wires in both_wires(some)]
    gathers = third | traits.sharding.gathers_every_pass
    result = []
    for unit in units:
        own = unit.trained or unit.params
        held = (unit.params.shared[one], unit.params.expert[one])
        states = zip(held, (own.shared[one], own.expert[one]), rates, strict=True)
        first, gathered, recompute_forward, reduced, filled, emptied, slowed = _wire_seconds(
            machine, traits, unit.matrices, states
        )
        first = gathered if later else first
        alone = unit.root | (second & (not traits.sharding.overlaps_gradients))
        traffic = PassTraffic(
            forward=(not unit.root) * gathers * first,
            backward=(not unit.root) * third * gathered + ~alone * reduced,
            forward_alone=gathers * (unit.root * first + filled),
            backward_alone=(not unit.root) * third * filled + alone * reduced + emptied,
            recompute_forward=third * recompute_forward,
            slowing=slowed / np.maximum(gathered + reduced, TINY),
        )
        result.append(traffic.take(key))
    return result


def _of_sort(some: Candidates, wires: Wires, *, either: BoolColumn, whole: BoolColumn) -> SortRates:
    """Source: as `sharded_traffic`, `zero_plus_plus`."""
    sharding = some.traits.sharding
    gather = only(either, wires.gather)
    reduced = wires.within if sharding.sums_copies_once else wires.reduction
    reduction = reduced(sharded=either, whole=whole)
    copies = copies_of(some, wires.gathered, wires.shards, wires.ranks).where(either)
    plain = SortRates(gather, gather, reduction, copies, wires.rails)
    return zero_plus_plus(some, wires, plain) if sharding.zero_plus_plus else plain


def _wire_seconds(
    machine: Machine,
    traits: RuntimeTraits,
    matrices: int,
    states: Iterable[tuple[FloatColumn, FloatColumn, SortRates]],
) -> FloatColumn:
    """Gathering a block first, once more, again for recomputation, and reducing its gradients.

    Then the copies that the passes wait for, of its weights and of its gradients. `states` are
    parameters of each sort, those of them that are trained, and the rates of their collectives.
    Source: `Fetches`.
    """
    fetches, message_bytes = traits.sharding.fetches, gradient_message_bytes(machine, traits)
    seconds = []
    for params, trained, rates in states:
        freed = fetches.freed(params)
        calls = [fetches.calls(n, fetches.gathered_params, matrices) for n in (params, freed)]
        reductions = fetches.calls(trained, fetches.reduced_params, matrices)
        stored = machine.storage_bytes * params
        gathered = rates.gather.in_calls(calls[0]).seconds(stored)
        reduced = rates.reduction.in_calls(reductions).seconds(message_bytes * trained)
        seconds.append(
            (
                rates.first.in_calls(calls[0]).seconds(stored),
                gathered,
                rates.gather.in_calls(calls[1]).seconds(machine.storage_bytes * freed)
                + rates.copies.gather * freed,
                reduced,
                rates.copies.gather * params,
                rates.copies.reduce * trained,
                rates.rails * (gathered + reduced),
            )
        )
    return np.asarray(np.sum(seconds, axis=0))


def over_micro_batches(
    candidates: Candidates,
    units: Sequence[Unit],
    layers: Callable[[list[PassTraffic]], list[LayerSeconds]],
) -> list[LayerSeconds]:
    """Of a mean micro batch of a step; `layers` of any one, by its traffic.

    Source: of m micro batches one is the first, so the mean is that of the later and 1 / m of what
    the first takes more, waiting counted in each.
    """
    first = layers(sharded_traffic(candidates, units))
    if not (candidates.table.hpz > 1).any():
        return first
    later = layers(sharded_traffic(candidates, units, later=True))
    share = 1 / num_microbatches(candidates.job, candidates.table)
    pairs = (
        zip(COLUMNS(one), COLUMNS(two), strict=True) for one, two in zip(first, later, strict=True)
    )
    return [LayerSeconds(*(after + share * (one - after) for one, after in pair)) for pair in pairs]


def overlapped_layer(
    contention: float, layer: LayerSeconds, traffic: PassTraffic, window: LayerSeconds
) -> LayerSeconds:
    """A layer with what its traffic exposes while it overlaps the passes of `window`.

    One layer is prefetched, so only what exceeds the window is exposed, and what is hidden still
    takes bandwidth from compute. What a repeated forward pass adds hides traffic of the backward
    pass too, which overlaps both.
    Source: Zhao et al., arXiv:2304.11277, section 3.3.
    """
    slows = contention * (traffic.slowing if contention < 1.0 else np.ones(1))
    forward = _exposed(slows, traffic.forward, window.forward) + traffic.forward_alone
    backward = _exposed(slows, traffic.backward, window.backward)
    whole = window.backward + window.recompute_forward
    again = _exposed(slows, traffic.backward + traffic.recompute_forward, whole) - backward
    backward = backward + traffic.backward_alone
    return LayerSeconds(
        layer.forward + forward,
        layer.backward + backward,
        weight=layer.weight,
        recompute_forward=layer.recompute_forward + again,
        recompute=layer.recompute,
        traffic=forward + backward,
        waiting=layer.waiting,
    )


def contention_of(candidates: Candidates) -> float:
    """Seconds that a second of traffic adds to compute: all of it where it overlaps nothing.

    Source: `fsdp_contention`; `Sharding.waits`.
    """
    waits = candidates.traits.sharding.waits
    return 1.0 if waits else candidates.machine.constants.fsdp_contention


def free_window(layer: LayerSeconds, traffic: PassTraffic) -> LayerSeconds:
    """Half the time of a decoder layer that its own traffic does not use: what one end may use.

    Source: traffic of t seconds over a layer of F leaves F - t; embedding and head may overlap
    the same layer, so each may use one half.
    """
    return replace(
        layer,
        forward=np.maximum(0.0, layer.forward - traffic.forward) / 2,
        backward=np.maximum(0.0, layer.backward - traffic.backward) / 2,
    )


def _exposed(contention: FloatColumn, traffic: FloatColumn, compute: FloatColumn) -> FloatColumn:
    """Seconds that traffic adds to the `compute` that it overlaps. Source: `fsdp_contention`."""
    overlapped = np.minimum(traffic, compute)
    return traffic - overlapped + contention * overlapped

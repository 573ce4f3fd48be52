"""Harmony: all micro batches of a layer before the next layer, so weights are swapped once."""

from __future__ import annotations

from trainplan.costmodel.lanes.loads import Lane, Order
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.passes import PASSES, layer_kinds
from trainplan.costmodel.lanes.placed import Column, Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Item, Part, Work


def swapped_in_bytes(weight_bytes: Column, micro_batches: Column, *, grouped: bool) -> Column:
    """Weights that come to the GPU in a step.

    Source: Li et al., Harmony, arXiv:2202.01306: every pass of every micro batch,
    or once a pass if all micro batches run before the next layers are fetched (input batch
    grouping).
    """
    return PASSES * weight_bytes * (1 if grouped else micro_batches)


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """Layer by layer, all micro batches each; the update of a layer on the host behind it."""
    del placement
    count = float(
        quantities.micro_batches
        if isinstance(quantities.micro_batches, int)
        else quantities.micro_batches[0]
    )
    layers = list(enumerate(layer_kinds(quantities)))
    visits = [("forward", *one) for one in layers] + [("backward", *one) for one in layers[::-1]]
    per_byte = quantities.updated / (quantities.layers * quantities.gradient_bytes).sum()
    items: list[Item] = []
    for index, (direction, layer, kind) in enumerate(visits):
        one_pass = quantities.forward if direction == "forward" else quantities.backward
        name, weights = f"{direction} {layer}", f"weights {direction} {layer}"
        size = quantities.weight_bytes[kind]
        room = (f"{visits[index - 2][0]} {visits[index - 2][1]}",) if index > 1 else ()
        items.append(Item(weights, Lane.H2D, size / speeds.h2d, room))
        items.append(Item(name, Lane.GPU, one_pass[kind] * count, (weights,)))
        if direction == "backward":
            sums = quantities.gradient_bytes[kind]
            items.append(Item(f"gradient {layer}", Lane.D2H, sums / speeds.d2h, (name,)))
            update = sums * per_byte / speeds.cpu_params
            items.append(Item(f"Adam {layer}", Lane.CPU, update, (f"gradient {layer}",)))
    return Work((Part(tuple(items), Order.BESIDE),))


METHOD = Method(
    name="harmony",
    what="all micro batches of a layer before the next: weights are swapped once a pass",
    source="Li et al., Harmony, arXiv:2202.01306",
    work=_work,
    keeps=(Kept(Place.HOST, "weights, gradients and moments in 32 bits", 16.0),),
)

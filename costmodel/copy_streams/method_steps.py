"""Steps of published methods whose program no runtime has: items of a single row."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from trainplan.costmodel.copy_streams.offloaded_step import (
    STATE_BYTES,
    step_work,
    subgroups,
    update_part,
)
from trainplan.costmodel.copy_streams.passes import layer_kinds, micro_batches, pass_items
from trainplan.costmodel.copy_streams.placement import Offloaded, Placement
from trainplan.costmodel.copy_streams.transfer_volume import Lane, Order
from trainplan.costmodel.copy_streams.work import Item, Part, Work


def interleaved_step(step: Offloaded) -> Work:
    """Deep Optimizer States: every k-th subgroup of the host's optimizer is updated on the GPU.

    k is the stride of the placement, or the best one if it has none.
    Source: Maurya et al., Deep Optimizer States, arXiv:2410.21316.
    """
    stride = int(np.asarray(step.placement.stride).reshape(-1)[0])
    placed = replace(step.placement, stride=stride or best_stride(step))
    return step_work(replace(step, placement=placed))


def best_stride(step: Offloaded) -> int:
    """The stride of one row whose update ends first; 0 if the CPUs alone end first.

    All are tried: filling and emptying the lanes counts where subgroups are few.
    Source: `update_seconds` of all strides.
    """
    tried = (0, *range(2, int(subgroups(step.quantities.updated, step.policy)[0]) + 1))
    seconds = [update_seconds(step, stride) for stride in tried]
    return int(tried[int(np.argmin(seconds))])


def update_seconds(step: Offloaded, stride: int) -> float:
    """Seconds of the update alone with a stride. Source: `Work.makespan` of `update_part`."""
    placed = replace(step, placement=Placement(optimizer=1.0, stride=stride))
    return float(Work((update_part(placed, pipelined=True),)).makespan[0])


def fuyou_step(step: Offloaded) -> Work:
    """Fuyou: Adam of a layer runs beside the backward pass of the next; nothing waits between.

    Source: Liao et al., Fuyou, arXiv:2403.06504.
    """
    count = np.atleast_1d(step.quantities.micro_batches)
    parts = (
        Part(tuple(_updated(pass_items(step, kind), step)), Order.OVERLAPPED, int(times[0]))
        for kind, times in micro_batches(count, step.policy, off=np.array([True]))
    )
    return Work(tuple(part for part in parts if part.rounds))


def _updated(items: Sequence[Item], step: Offloaded) -> Iterator[Item]:
    """Behind the gradients of each layer its Adam: read, update, write, beside further layers."""
    speeds, policy = step.speeds, step.policy
    before: tuple[str, ...] = ()
    for item in items:
        yield item
        if not item.name.startswith("gradient "):
            continue
        layer = item.name.removeprefix("gradient ")
        params = item.seconds * speeds.d2h / policy.gradient_bytes
        read, update = f"read states {layer}", f"Adam {layer}"
        yield Item(read, Lane.DRIVE_READ, STATE_BYTES * params / speeds.drive_read, before)
        yield Item(update, Lane.CPU, params / speeds.cpu_params, (item.name, read))
        written = (STATE_BYTES + policy.weight_bytes) * params / speeds.drive_write
        yield Item(f"write states {layer}", Lane.DRIVE_WRITE, written, (update,))
        before = (update,)


def harmony_step(step: Offloaded) -> Work:
    """Harmony: all micro batches of a layer before the next, so weights are fetched once a pass.

    The update of a layer runs on the host behind it; its placement and policy leave nothing open.
    Source: Li et al., Harmony, arXiv:2202.01306 (input batch grouping).
    """
    quantities, speeds = step.quantities, step.speeds
    count = float(np.asarray(quantities.micro_batches).reshape(-1)[0])
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
    return Work((Part(tuple(items), Order.OVERLAPPED),))

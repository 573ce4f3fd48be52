"""Fuyou: Adam out of core beside the backward pass; the best part of activations swapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.loads import Lane, Order
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.passes import micro_batches, pass_items
from trainplan.costmodel.lanes.placed import Accumulation, Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.update import STATE_BYTES
from trainplan.costmodel.lanes.work import Item, Part, Work

HABITS = replace(
    deepspeed_habits(3),
    accumulation=Accumulation.OFF_IF_SEVERAL,
    gradient_bytes=2.0,
    keeps_last=False,
)
"""Gradients leave in 16 bits. Source: Liao et al., Fuyou, arXiv:2403.06504"""


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """The placement's share of activations goes to the drive; nothing waits between passes."""
    placed = Placement(
        optimizer=1.0,
        parameters=Place.DRIVE,
        checkpoints=placement.checkpoints,
        checkpoints_place=Place.DRIVE,
    )
    count = np.atleast_1d(quantities.micro_batches)
    parts = (
        Part(
            tuple(_updated(pass_items(quantities, speeds, placed, HABITS, kind), speeds)),
            Order.BESIDE,
            int(times[0]),
        )
        for kind, times in micro_batches(count, HABITS, off=np.array([True]))
    )
    return Work(tuple(part for part in parts if part.rounds))


def _updated(items: Sequence[Item], speeds: Speeds) -> Iterator[Item]:
    """Behind the gradients of each layer its Adam: read, update, write, beside further layers."""
    before: tuple[str, ...] = ()
    for item in items:
        yield item
        if not item.name.startswith("gradient "):
            continue
        layer = item.name.removeprefix("gradient ")
        params = item.seconds * speeds.d2h / HABITS.gradient_bytes
        read, update = f"read states {layer}", f"Adam {layer}"
        yield Item(read, Lane.DRIVE_READ, STATE_BYTES * params / speeds.drive_read, before)
        yield Item(update, Lane.CPU, params / speeds.cpu_params, (item.name, read))
        written = (STATE_BYTES + HABITS.weight_bytes) * params / speeds.drive_write
        yield Item(f"write states {layer}", Lane.DRIVE_WRITE, written, (update,))
        before = (update,)


METHOD = Method(
    name="fuyou",
    what="Adam of a layer beside the backward pass of the next; activations swapped to drives",
    source="Liao et al., Fuyou, arXiv:2403.06504",
    work=_work,
    keeps=(
        Kept(Place.DRIVE, "weights in 16 bits", 2.0),
        Kept(Place.DRIVE, "weights in 32 bits", 4.0),
        Kept(Place.DRIVE, "moments", 8.0),
    ),
)

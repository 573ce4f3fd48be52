"""Items of one micro batch of a single row, one pass through a layer after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trainplan.costmodel.lanes.loads import Lane
from trainplan.costmodel.lanes.placed import (
    Gradients,
    Habits,
    Place,
    Placement,
    Quantities,
    Speeds,
)
from trainplan.costmodel.lanes.work import Item


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass through one layer."""

    name: str
    layer: int
    kind: int
    forward: bool


@dataclass(frozen=True, slots=True)
class RowItems:
    """Items of one row."""

    quantities: Quantities
    speeds: Speeds
    placement: Placement
    habits: Habits
    gradients: Gradients
    passes: list[Pass]
    last_kept: int
    """The last layer that keeps any activations; -1: none does."""

    def _at(self, index: int) -> Pass | None:
        """A pass by its place, if there is one."""
        return self.passes[index] if 0 <= index < len(self.passes) else None

    def _after(self, index: int) -> tuple[str, ...]:
        """The name of the pass at a place, if there is one."""
        one = self._at(index)
        return (one.name,) if one else ()

    def _kept(self, one: Pass) -> float:
        """Bytes of kept activations that leave the GPU."""
        if self.habits.keeps_last and one.layer == self.last_kept:
            return 0.0
        share = _one(self.placement.checkpoints)
        return float(self.quantities.checkpoint_bytes[one.kind, 0]) * share

    def read(self, index: int) -> Iterator[Item]:
        """Weights from the drive into a buffer that frees when an earlier pass ends."""
        one = self._at(index)
        if one and _one(self.placement.parameters) == Place.DRIVE:
            seconds = self.quantities.weight_bytes[one.kind] / self.speeds.drive_read
            buffers = 2 * self.habits.prefetch + 1
            yield Item(f"read {one.name}", Lane.DRIVE_READ, seconds, self._after(index - buffers))

    def fetch(self, index: int) -> Iterator[Item]:
        """Weights from the host, for a pass that runs `prefetch` passes later."""
        one = self._at(index)
        place = _one(self.placement.parameters)
        if one and place != Place.DEVICE:
            seconds = self.quantities.weight_bytes[one.kind] / self.speeds.h2d
            read = (f"read {one.name}",) if place == Place.DRIVE else ()
            after = self._after(index - self.habits.prefetch - 1)
            yield Item(f"weights {one.name}", Lane.H2D, seconds, (*read, *after))

    def return_checkpoint(self, index: int) -> Iterator[Item]:
        """Kept activations of a backward pass: when the pass before starts if beside, or ends."""
        one = self._at(index)
        if not one or one.forward or not (size := self._kept(one)):
            return
        after = self._after(index - 1 - self.habits.checkpoints_beside)
        source = f"keep {one.layer}"
        if _one(self.placement.checkpoints_place) == Place.DRIVE:
            stored = f"store {one.layer}"
            seconds = size / self.speeds.drive_read
            source = f"load {one.layer}"
            yield Item(source, Lane.DRIVE_READ, seconds, (stored, *after))
        yield Item(f"return {one.layer}", Lane.H2D, size / self.speeds.h2d, (source, *after))

    def compute(self, index: int) -> Iterator[Item]:
        """A pass with what it waits for, and what leaves the GPU behind it."""
        one = self._at(index)
        if not one:
            return
        kept, seconds = self._kept(one), self.quantities.forward
        after = []
        if _one(self.placement.parameters) != Place.DEVICE:
            after.append(f"weights {one.name}")
        if not one.forward:
            seconds = self.quantities.backward
            after += [f"return {one.layer}"] if kept else []
        elif kept and not self.habits.checkpoints_beside:
            before = self._at(index - 1)
            after += [f"keep {before.layer}"] if before and self._kept(before) else []
        yield Item(one.name, Lane.GPU, seconds[one.kind], tuple(after))
        if one.forward and kept:
            yield Item(f"keep {one.layer}", Lane.D2H, kept / self.speeds.d2h, (one.name,))
            if _one(self.placement.checkpoints_place) == Place.DRIVE:
                stored = kept / self.speeds.drive_write
                yield Item(f"store {one.layer}", Lane.DRIVE_WRITE, stored, (f"keep {one.layer}",))

    def gradient(self, index: int) -> Iterator[Item]:
        """Gradients of a layer: earlier sums come back, new ones leave, the last for the update."""
        one = self._at(index)
        if not one or one.forward:
            return
        moved, after = self.gradients, (one.name,)
        size = self.quantities.gradient_bytes[one.kind]
        if _one(moved.back):
            yield Item(f"sum back {one.layer}", Lane.H2D, size / self.speeds.h2d, after)
            after = (f"sum back {one.layer}",)
        if _one(moved.out):
            yield Item(f"sum out {one.layer}", Lane.D2H, size / self.speeds.d2h, after)
        if not _one(moved.summed):
            return
        every = (self.quantities.layers * self.quantities.gradient_bytes).sum()
        share = size / every if every else 2.0 / len(self.passes)
        left = self.gradient_out * share
        yield Item(f"gradient {one.layer}", Lane.D2H, left / self.speeds.d2h, after)
        if _one(self.placement.optimizer_place) == Place.DRIVE:
            seconds = left / self.speeds.drive_write
            after = (f"gradient {one.layer}",)
            yield Item(f"write gradient {one.layer}", Lane.DRIVE_WRITE, seconds, after)

    @property
    def gradient_out(self) -> float:
        """Bytes of summed gradients that leave the GPU for the CPUs."""
        updated = float(self.quantities.updated[0] * _one(self.placement.optimizer))
        return updated * self.habits.gradient_bytes


def _one(column: ArrayLike) -> float:
    """The value of a single row."""
    return float(np.asarray(column).reshape(-1)[0])

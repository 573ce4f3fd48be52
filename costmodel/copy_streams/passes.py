"""Forward and backward passes of a micro batch through layers whose bytes lie off the GPU.

`pass_loads` has the seconds by lane of many rows in closed form, `pass_items` the same work piece
by piece for one row: their sums are equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trainplan.costmodel.copy_streams.placement import (
    Accumulation,
    BoolColumn,
    IntColumn,
    Offloaded,
    OffloadPolicy,
    Place,
    Quantities,
)
from trainplan.costmodel.copy_streams.transfer_volume import FloatColumn, Lane, LaneRows, lane_rows
from trainplan.costmodel.copy_streams.work import Item

PASSES = 2
"""Times that weights are fetched in a micro batch: for the forward and the backward pass.

What is recomputed there needs no third fetch.
Source: DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py, release_sub_module and
`__params_to_release`: a module's weights stay while they are used again within
stage3_max_reuse_distance (1e9 parameters by default).
"""


@dataclass(frozen=True, slots=True)
class Gradients:
    """What of gradients moves in one micro batch, by row."""

    back: BoolColumn
    """Sums of earlier ones come back to the GPU."""
    out: BoolColumn
    """They leave with its own added."""
    summed: BoolColumn
    """The sums of all leave for the update: it is the last micro batch."""


def micro_batches(
    count: IntColumn, policy: OffloadPolicy, *, off: BoolColumn
) -> list[tuple[Gradients, IntColumn]]:
    """Kinds of micro batches in the order in which they run, and how many of each there are.

    Source: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py, copy_grads_in_partition and
    async_accumulate_grad_in_cpu_via_gpu (stages 1 and 2: those after the first come back, none is
    moved if there is one); runtime/zero/stage3.py, partition_grads (out and back in each). PyTorch
    2.14, fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce (out in each, added there).
    """
    if policy.accumulation is Accumulation.ADDED_OFF:
        return [(Gradients(off & False, off, off & False), count)]
    always = off & (policy.accumulation is Accumulation.OFF)
    if_several = policy.accumulation is Accumulation.OFF_IF_SEVERAL
    moves = always | (off & if_several & (count > 1))
    sums = off & (not policy.gradients_with_update)
    return [
        (Gradients(always, moves, sums & (count == 1)), np.minimum(1, count)),
        (Gradients(moves, moves, sums & False), np.maximum(0, count - 2)),
        (Gradients(moves, moves, sums), (count > 1).astype(np.int64)),
    ]


def pass_loads(step: Offloaded, gradients: Gradients) -> LaneRows:
    """Seconds (lane, row) of both passes of one micro batch.

    Source: derived, the layers of each kind times the seconds of one, as in `pass_items`.
    """
    quantities, speeds, placement = step.quantities, step.speeds, step.placement
    count = quantities.layers
    weights = PASSES * (count * quantities.weight_bytes).sum(axis=0)
    sums = (count * quantities.gradient_bytes).sum(axis=0)
    kept = away_bytes(quantities, step.policy) * placement.checkpoints
    fetched = weights * (np.asarray(placement.parameters) != Place.DEVICE)
    read = weights * (np.asarray(placement.parameters) == Place.DRIVE)
    deep = kept * (np.asarray(placement.checkpoints_place) == Place.DRIVE)
    # DeepSpeed 0.19.8, runtime/zero/stage3.py, _offload_grad_partition_at_boundary
    out = quantities.updated * placement.optimizer * step.policy.gradient_bytes
    written = out * (np.asarray(placement.optimizer_place) == Place.DRIVE)
    return lane_rows(
        quantities.rows,
        {
            Lane.GPU: (count * (quantities.forward + quantities.backward)).sum(axis=0),
            Lane.H2D: (fetched + kept + sums * gradients.back) / speeds.h2d,
            Lane.D2H: (kept + sums * gradients.out + out * gradients.summed) / speeds.d2h,
            Lane.DRIVE_READ: (read + deep) / speeds.drive_read,
            Lane.DRIVE_WRITE: (deep + written * gradients.summed) / speeds.drive_write,
        },
    )


def away_bytes(quantities: Quantities, policy: OffloadPolicy) -> FloatColumn:
    """Kept activations of a micro batch that leave the GPU if all may: not those of the last layer.

    Source: DeepSpeed 0.19.8, runtime/activation_checkpointing/checkpointing.py,
    `_get_cpu_offload_engine`: keep_last_count=1, the backward pass wants them at once.
    """
    every = quantities.layers * quantities.checkpoint_bytes
    if not policy.keeps_last:
        return np.asarray(every.sum(axis=0))
    last = len(every) - 1 - np.argmax((every > 0)[::-1], axis=0)
    one = np.where(every.any(axis=0), quantities.checkpoint_bytes[last, range(quantities.rows)], 0)
    return np.asarray(every.sum(axis=0) - one)


def layer_kinds(quantities: Quantities) -> list[int]:
    """Kind of each layer of a single row in the order of the forward pass."""
    counts = quantities.layers[:, 0].round().astype(int)
    return [kind for kind, count in enumerate(counts) for _ in range(count)]


def pass_items(step: Offloaded, gradients: Gradients) -> tuple[Item, ...]:
    """Both passes of one micro batch of a single row.

    Fetches of a pass stand `prefetch` passes before it, drive reads twice as far: a lane serves in
    that order.
    Source: DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py: fetch_sub_module starts
    further fetches when a module starts; `__prefetch_nvme_param_partitions` reads up to twice what
    is under way.
    """
    layers = list(enumerate(layer_kinds(step.quantities)))
    passes = [Pass(f"forward {layer}", layer, kind, forward=True) for layer, kind in layers]
    passes += [
        Pass(f"backward {layer}", layer, kind, forward=False) for layer, kind in layers[::-1]
    ]
    kept = [layer for layer, kind in layers if step.quantities.checkpoint_bytes[kind, 0] > 0]
    row = RowItems(step, gradients, passes, max(kept, default=-1))
    items: list[Item] = []
    ahead = step.policy.prefetch
    for index in range(-2 * ahead, len(passes)):
        items += row.read(index + 2 * ahead)
        items += row.fetch(index + ahead)
        items += row.compute(index)
        items += row.return_checkpoint(index + 1)
        items += row.gradient(index)
    return tuple(items)


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

    step: Offloaded
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
        if self.step.policy.keeps_last and one.layer == self.last_kept:
            return 0.0
        share = _one(self.step.placement.checkpoints)
        return float(self.step.quantities.checkpoint_bytes[one.kind, 0]) * share

    def read(self, index: int) -> Iterator[Item]:
        """Weights from the drive into a buffer that frees when an earlier pass ends."""
        one = self._at(index)
        if one and _one(self.step.placement.parameters) == Place.DRIVE:
            seconds = self.step.quantities.weight_bytes[one.kind] / self.step.speeds.drive_read
            buffers = 2 * self.step.policy.prefetch + 1
            yield Item(f"read {one.name}", Lane.DRIVE_READ, seconds, self._after(index - buffers))

    def fetch(self, index: int) -> Iterator[Item]:
        """Weights from the host, for a pass that runs `prefetch` passes later."""
        one = self._at(index)
        place = _one(self.step.placement.parameters)
        if one and place != Place.DEVICE:
            seconds = self.step.quantities.weight_bytes[one.kind] / self.step.speeds.h2d
            read = (f"read {one.name}",) if place == Place.DRIVE else ()
            after = self._after(index - self.step.policy.prefetch - 1)
            yield Item(f"weights {one.name}", Lane.H2D, seconds, (*read, *after))

    def return_checkpoint(self, index: int) -> Iterator[Item]:
        """Kept activations of a backward pass: when the pass before starts if beside, or ends."""
        one = self._at(index)
        if not one or one.forward or not (size := self._kept(one)):
            return
        after = self._after(index - 1 - self.step.policy.overlaps_checkpoints)
        source = f"keep {one.layer}"
        if _one(self.step.placement.checkpoints_place) == Place.DRIVE:
            stored = f"store {one.layer}"
            seconds = size / self.step.speeds.drive_read
            source = f"load {one.layer}"
            yield Item(source, Lane.DRIVE_READ, seconds, (stored, *after))
        yield Item(f"return {one.layer}", Lane.H2D, size / self.step.speeds.h2d, (source, *after))

    def compute(self, index: int) -> Iterator[Item]:
        """A pass with what it waits for, and what leaves the GPU behind it."""
        one = self._at(index)
        if not one:
            return
        kept, seconds = self._kept(one), self.step.quantities.forward
        after = []
        if _one(self.step.placement.parameters) != Place.DEVICE:
            after.append(f"weights {one.name}")
        if not one.forward:
            seconds = self.step.quantities.backward
            after += [f"return {one.layer}"] if kept else []
        elif (
            index
            and not self.step.policy.overlaps_checkpoints
            and self._kept(self.passes[index - 1])
        ):
            after.append(f"keep {self.passes[index - 1].layer}")
        yield Item(one.name, Lane.GPU, seconds[one.kind], tuple(after))
        if one.forward and kept:
            yield Item(f"keep {one.layer}", Lane.D2H, kept / self.step.speeds.d2h, (one.name,))
            if _one(self.step.placement.checkpoints_place) == Place.DRIVE:
                stored = kept / self.step.speeds.drive_write
                yield Item(f"store {one.layer}", Lane.DRIVE_WRITE, stored, (f"keep {one.layer}",))

    def gradient(self, index: int) -> Iterator[Item]:
        """Gradients of a layer: earlier sums come back, new ones leave, the last for the update."""
        one = self._at(index)
        if not one or one.forward:
            return
        moved, after = self.gradients, (one.name,)
        size = self.step.quantities.gradient_bytes[one.kind]
        if _one(moved.back):
            yield Item(f"sum back {one.layer}", Lane.H2D, size / self.step.speeds.h2d, after)
            after = (f"sum back {one.layer}",)
        if _one(moved.out):
            yield Item(f"sum out {one.layer}", Lane.D2H, size / self.step.speeds.d2h, after)
        if not _one(moved.summed):
            return
        every = (self.step.quantities.layers * self.step.quantities.gradient_bytes).sum()
        share = size / every if every else 2.0 / len(self.passes)
        updated = self.step.quantities.updated[0] * _one(self.step.placement.optimizer)
        left = float(updated) * self.step.policy.gradient_bytes * share
        yield Item(f"gradient {one.layer}", Lane.D2H, left / self.step.speeds.d2h, after)
        if _one(self.step.placement.optimizer_place) == Place.DRIVE:
            seconds = left / self.step.speeds.drive_write
            after = (f"gradient {one.layer}",)
            yield Item(f"write gradient {one.layer}", Lane.DRIVE_WRITE, seconds, after)


def _one(column: ArrayLike) -> float:
    """The value of a single row."""
    return float(np.asarray(column).reshape(-1)[0])

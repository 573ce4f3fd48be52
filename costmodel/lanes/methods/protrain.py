"""ProTrain: how many blocks stay, are buffered, swapped and computed again, by trying all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = deepspeed_habits(3)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Equal blocks of a model on one GPU: seconds and bytes of one."""

    count: int
    forward: float
    backward: float
    fetch: float
    """Of its weights from the host."""
    swap: float
    """Of its activations one way."""
    weight_bytes: float
    activation_bytes: float
    checkpoint_bytes: float
    """Kept of its activations if they are computed again."""


@dataclass(frozen=True, slots=True)
class Split:
    """Blocks whose weights stay or have a buffer, whose activations are swapped or recomputed."""

    persist: int
    buffers: int
    swapped: int
    recomputed: int


def split_bytes(blocks: Blocks, split: Split) -> float:
    """Bytes on the GPU when the backward pass begins.

    Source: Yang et al., ProTrain, arXiv:2406.08334: persistent chunks and buffers, whole
    activations of blocks that are neither swapped nor checkpointed, checkpoints of the others.
    """
    whole = blocks.count - split.swapped - split.recomputed
    weights = blocks.weight_bytes * (split.persist + split.buffers)
    kept = split.recomputed * blocks.checkpoint_bytes
    return weights + whole * blocks.activation_bytes + kept


def split_seconds(blocks: Blocks, split: Split) -> float:
    """Seconds of both passes: each block the longer of what it computes and what the link carries.

    Blocks in buffers at the end of the forward pass need no second fetch; the first blocks stay and
    are swapped, for whose activations the longest time passes.
    Source: Yang et al., ProTrain, arXiv:2406.08334, T = sum of max(T_compute, T_fetch).
    """
    index = np.arange(blocks.count)
    away = index >= split.persist
    again = away & (index < blocks.count - split.buffers)
    swapped = (index < split.swapped) * blocks.swap
    recomputed = (index >= split.swapped) & (index < split.swapped + split.recomputed)
    backward = blocks.backward + recomputed * blocks.forward
    up = np.maximum(blocks.forward, np.maximum(away * blocks.fetch, swapped))
    down = np.maximum(backward, again * blocks.fetch + swapped)
    return float(up.sum() + down.sum())


def splits(blocks: Blocks) -> Iterator[Split]:
    """All of them: blocks that do not stay need a buffer."""
    for persist in range(blocks.count + 1):
        away = blocks.count - persist
        for buffers in range(min(1, away), away + 1):
            for swapped in range(blocks.count + 1):
                for recomputed in range(blocks.count - swapped + 1):
                    yield Split(persist, buffers, swapped, recomputed)


def best_split(blocks: Blocks, room_bytes: float) -> Split | None:
    """The fastest that fits; none if none does.

    Source: Yang et al., ProTrain, arXiv:2406.08334 (exhaustive search).
    """
    fit = (split for split in splits(blocks) if split_bytes(blocks, split) <= room_bytes)
    return min(fit, key=lambda split: split_seconds(blocks, split), default=None)


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """Weights and optimizer on the host, activations as placed."""
    placed = Placement(optimizer=1.0, parameters=Place.HOST, checkpoints=placement.checkpoints)
    return step_work(quantities, speeds, placed, HABITS)


METHOD = Method(
    name="protrain",
    what="numbers of blocks that stay, are buffered, swapped and computed again: the best of all",
    source="Yang et al., ProTrain, arXiv:2406.08334",
    work=_work,
    keeps=(
        Kept(Place.HOST, "weights in 16 bits", 2.0),
        Kept(Place.HOST, "gradients in 16 bits", 2.0),
        Kept(Place.HOST, "weights in 32 bits", 4.0),
        Kept(Place.HOST, "moments", 8.0),
    ),
)

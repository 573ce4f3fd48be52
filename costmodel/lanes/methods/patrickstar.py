"""PatrickStar: states in chunks of one size that move between host and GPU as they are used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = deepspeed_habits(3)


def chunks(tensors: Sequence[int], size: int) -> int:
    """Chunks that tensors fill in order, none split.

    Source: Fang et al., PatrickStar, arXiv:2108.05818 (tensors are mapped in order of
    their use; one that does not fit opens the next chunk).
    """
    count, room = 0, 0
    for tensor in tensors:
        if tensor > room:
            count, room = count + 1, size
        room -= tensor
    return count


def best_chunk(tensors: Sequence[int], sizes: Sequence[int]) -> int:
    """Chunk size that wastes least, the smaller of equals; none below the largest tensor.

    Source: Fang et al., PatrickStar, arXiv:2108.05818 (search for the chunk size).
    """
    fit = [size for size in sorted(sizes) if size >= max(tensors)]
    return min(fit, key=lambda size: chunks(tensors, size) * size)


def moves(uses: Sequence[int], room: int) -> int:
    """Chunks fetched in a step if the one whose next use is furthest away leaves.

    Source: Fang et al., PatrickStar, arXiv:2108.05818 (eviction after Belady, the
    order of uses being known from a warm-up step).
    """
    held: set[int] = set()
    fetched = 0
    for now, chunk in enumerate(uses):
        if chunk in held:
            continue
        fetched += 1
        if len(held) >= room:
            held.remove(max(held, key=lambda one: _next_use(uses, one, now)))
        held.add(chunk)
    return fetched


def _next_use(uses: Sequence[int], chunk: int, now: int) -> int:
    """Place of the next use of a chunk; behind all if there is none."""
    return next((at for at in range(now, len(uses)) if uses[at] == chunk), len(uses))


def least_moved_bytes(model_bytes: float, room_bytes: float) -> float:
    """Bytes that cross to the GPU and back in a step at least, of what has no room there.

    Source: derived; the passes use all model data, so what lies off the GPU at the start comes in,
    and as much leaves to make the room it takes.
    """
    return 2.0 * max(0.0, model_bytes - room_bytes)


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """Weights and optimizer on the host, a share of the latter as placed or all."""
    share = placement.optimizer if np.any(placement.optimizer) else 1.0
    placed = Placement(optimizer=share, parameters=Place.HOST)
    return step_work(quantities, speeds, placed, HABITS)


METHOD = Method(
    name="patrickstar",
    what="states in chunks that move between host and GPU, the one needed last leaves first",
    source="Fang et al., PatrickStar, arXiv:2108.05818",
    work=_work,
    keeps=(
        Kept(Place.HOST, "weights in 16 bits, their chunks hold gradients later", 2.0),
        Kept(Place.HOST, "weights in 32 bits", 4.0),
        Kept(Place.HOST, "moments", 8.0),
    ),
)

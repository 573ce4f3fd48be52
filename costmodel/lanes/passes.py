"""Forward and backward passes of a micro batch through layers whose bytes lie off the GPU.

`pass_loads` has the seconds by lane of many rows in closed form, `pass_items` the same work piece
by piece for one row: their sums are equal.
"""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.lanes.loads import FloatColumn, Lane, LaneRows, lane_rows
from trainplan.costmodel.lanes.placed import (
    Accumulation,
    BoolColumn,
    Gradients,
    Habits,
    IntColumn,
    Place,
    Placement,
    Quantities,
    Speeds,
)
from trainplan.costmodel.lanes.row_items import Pass, RowItems
from trainplan.costmodel.lanes.work import Item

PASSES = 2
"""Times that weights are fetched in a micro batch: for the forward and the backward pass.

What is recomputed there needs no third fetch.
Source: DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py, release_sub_module and
`__params_to_release`: a module's weights stay while they are used again within
stage3_max_reuse_distance (1e9 parameters by default).
"""


def micro_batches(
    count: IntColumn, habits: Habits, *, off: BoolColumn
) -> list[tuple[Gradients, IntColumn]]:
    """Kinds of micro batches in the order in which they run, and how many of each there are.

    Source: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py, copy_grads_in_partition and
    async_accumulate_grad_in_cpu_via_gpu (stages 1 and 2: those after the first come back, none is
    moved if there is one); runtime/zero/stage3.py, partition_grads (out and back in each). PyTorch
    2.14, fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce (out in each, added there).
    """
    if habits.accumulation is Accumulation.ADDED_OFF:
        return [(Gradients(off & False, off, off & False), count)]
    always = off & (habits.accumulation is Accumulation.OFF)
    if_several = habits.accumulation is Accumulation.OFF_IF_SEVERAL
    moves = always | (off & if_several & (count > 1))
    sums = off & (not habits.gradients_with_update)
    return [
        (Gradients(always, moves, sums & (count == 1)), np.minimum(1, count)),
        (Gradients(moves, moves, sums & False), np.maximum(0, count - 2)),
        (Gradients(moves, moves, sums), (count > 1).astype(np.int64)),
    ]


def pass_loads(
    quantities: Quantities,
    speeds: Speeds,
    placement: Placement,
    habits: Habits,
    gradients: Gradients,
) -> LaneRows:
    """Seconds (lane, row) of both passes of one micro batch.

    Source: derived, the layers of each kind times the seconds of one, as in `pass_items`.
    """
    count = quantities.layers
    weights = PASSES * (count * quantities.weight_bytes).sum(axis=0)
    sums = (count * quantities.gradient_bytes).sum(axis=0)
    kept = away_bytes(quantities, habits) * placement.checkpoints
    fetched = weights * (np.asarray(placement.parameters) != Place.DEVICE)
    read = weights * (np.asarray(placement.parameters) == Place.DRIVE)
    deep = kept * (np.asarray(placement.checkpoints_place) == Place.DRIVE)
    out, written = _sums_out(quantities, placement, habits)
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


def away_bytes(quantities: Quantities, habits: Habits) -> FloatColumn:
    """Kept activations of a micro batch that leave the GPU if all may: not those of the last layer.

    Source: DeepSpeed 0.19.8, runtime/activation_checkpointing/checkpointing.py,
    `_get_cpu_offload_engine`: keep_last_count=1, the backward pass wants them at once.
    """
    every = quantities.layers * quantities.checkpoint_bytes
    if not habits.keeps_last:
        return np.asarray(every.sum(axis=0))
    last = len(every) - 1 - np.argmax((every > 0)[::-1], axis=0)
    one = np.where(every.any(axis=0), quantities.checkpoint_bytes[last, range(quantities.rows)], 0)
    return np.asarray(every.sum(axis=0) - one)


def _sums_out(
    quantities: Quantities, placement: Placement, habits: Habits
) -> tuple[FloatColumn, FloatColumn]:
    """Bytes of summed gradients that leave the GPU for the CPUs, and go on to the drive.

    Source: DeepSpeed 0.19.8, runtime/zero/stage3.py, _offload_grad_partition_at_boundary.
    """
    out = quantities.updated * placement.optimizer * habits.gradient_bytes
    return out, out * (np.asarray(placement.optimizer_place) == Place.DRIVE)


def layer_kinds(quantities: Quantities) -> list[int]:
    """Kind of each layer of a single row in the order of the forward pass."""
    counts = quantities.layers[:, 0].round().astype(int)
    return [kind for kind, count in enumerate(counts) for _ in range(count)]


def pass_items(
    quantities: Quantities,
    speeds: Speeds,
    placement: Placement,
    habits: Habits,
    gradients: Gradients,
) -> tuple[Item, ...]:
    """Both passes of one micro batch of a single row.

    Fetches of a pass stand `prefetch` passes before it, drive reads twice as far: a lane serves in
    that order.
    Source: DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py: fetch_sub_module starts
    further fetches when a module starts; `__prefetch_nvme_param_partitions` reads up to twice what
    is under way.
    """
    layers = list(enumerate(layer_kinds(quantities)))
    passes = [Pass(f"forward {layer}", layer, kind, forward=True) for layer, kind in layers]
    passes += [
        Pass(f"backward {layer}", layer, kind, forward=False) for layer, kind in layers[::-1]
    ]
    kept = [layer for layer, kind in layers if quantities.checkpoint_bytes[kind, 0] > 0]
    last = max(kept, default=-1)
    row = RowItems(quantities, speeds, placement, habits, gradients, passes, last)
    items: list[Item] = []
    ahead = habits.prefetch
    for index in range(-2 * ahead, len(passes)):
        items += row.read(index + 2 * ahead)
        items += row.fetch(index + ahead)
        items += row.compute(index)
        items += row.return_checkpoint(index + 1)
        items += row.gradient(index)
    return tuple(items)

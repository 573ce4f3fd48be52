"""A step of a runtime that keeps weights, optimizer or activations off the GPU.

    floor = floor_of_step(quantities, speeds, placement, policy)      every row, closed form
    seconds = seconds_of_step(quantities, speeds, placement, policy)  finalists: longest path
    work = step_work(quantities.take([i]), ...)                       one row: lanes, what binds

`floor_of_step` is `Work.floor` of the same row and never above `seconds_of_step`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainplan.costmodel.copy_streams.offload_policies import OffloadPolicy
from trainplan.costmodel.copy_streams.passes import micro_batches, pass_items, pass_loads
from trainplan.costmodel.copy_streams.placement import BoolColumn, Placement, Quantities, Speeds
from trainplan.costmodel.copy_streams.transfer_volume import FloatColumn, Load, Order, floor_seconds
from trainplan.costmodel.copy_streams.update import update_load, update_part
from trainplan.costmodel.copy_streams.work import Part, Work


def step_work(
    quantities: Quantities, speeds: Speeds, placement: Placement, policy: OffloadPolicy
) -> Work:
    """A step of a single row as items."""
    delayed = bool(_column(placement.delayed, 1)[0])
    pipelined = bool(_pipelined(placement, policy, 1)[0])
    kinds = micro_batches(
        _column(quantities.micro_batches, 1), policy, off=_column(placement.updates_off, 1)
    )
    passes = tuple(
        Part(
            pass_items(quantities, speeds, placement, policy, kind),
            _order(policy, delayed=delayed),
            int(times[0]),
        )
        for kind, times in kinds
        if times[0]
    )
    update = update_part(quantities, speeds, placement, policy, pipelined=pipelined)
    return Work((update, *passes) if delayed else (*passes, update))


def step_loads(
    quantities: Quantities, speeds: Speeds, placement: Placement, policy: OffloadPolicy
) -> tuple[Load, ...]:
    """A step of rows that agree in what is delayed and pipelined, seconds by lane."""
    rows = quantities.rows
    delayed = bool(np.any(placement.delayed))
    pipelined = bool(np.any(_pipelined(placement, policy, rows)))
    order = _order(policy, delayed=delayed)
    count = _column(quantities.micro_batches, rows)
    passes = tuple(
        Load(pass_loads(quantities, speeds, placement, policy, kind), order, times)
        for kind, times in micro_batches(count, policy, off=_column(placement.updates_off, rows))
    )
    update = update_load(quantities, speeds, placement, policy, pipelined=pipelined)
    return (update, *passes) if delayed else (*passes, update)


def floor_of_step(
    quantities: Quantities, speeds: Speeds, placement: Placement, policy: OffloadPolicy
) -> FloatColumn:
    """Least seconds (row,) of a step, the update included. Source: `floor_seconds`."""
    floor = np.empty(quantities.rows)
    for rows, alike in _alike(quantities, speeds, placement, policy):
        floor[rows] = floor_seconds(step_loads(*alike, policy))
    return floor


def seconds_of_step(
    quantities: Quantities, speeds: Speeds, placement: Placement, policy: OffloadPolicy
) -> FloatColumn:
    """Seconds (row,) of a step as each row's longest path. Source: `Work.makespan`."""
    of = quantities.rows
    rows = ([row] for row in range(of))
    works = (
        step_work(quantities.take(row), speeds.take(row, of), placement.take(row, of), policy)
        for row in rows
    )
    return np.array([float(work.makespan[0]) for work in works])


def _order(policy: OffloadPolicy, *, delayed: bool) -> Order:
    """How the passes of micro batches wait for each other.

    A micro batch ends when its gradients have left the GPU: DeepSpeed synchronizes there. Only
    beside a delayed update they run on.
    Source: DeepSpeed 0.19.8, runtime/zero/stage3.py and stage_1_and_2.py,
    independent_gradient_partition_epilogue.
    """
    if delayed:
        return Order.OVERLAPPED
    return Order.ROUNDS if policy.overlaps else Order.CHAIN


def _pipelined(placement: Placement, policy: OffloadPolicy, rows: int) -> BoolColumn:
    """Rows whose subgroups are updated beside each other: by policy, on the GPU too, or delayed."""
    chosen = (_column(placement.stride, rows) > 0) | _column(placement.delayed, rows)
    return np.asarray(chosen | policy.pipelines_update)


def _column(value: ArrayLike, rows: int) -> NDArray[Any]:
    """A column of as many rows."""
    return np.broadcast_to(np.asarray(value), (rows,))


def _alike(
    quantities: Quantities, speeds: Speeds, placement: Placement, policy: OffloadPolicy
) -> Iterator[tuple[BoolColumn, tuple[Quantities, Speeds, Placement]]]:
    """Rows that agree in what is delayed and pipelined, together."""
    of = quantities.rows
    key = _column(placement.delayed, of) + 2 * _pipelined(placement, policy, of)
    for value in np.unique(key):
        rows = key == value
        if rows.all():
            yield rows, (quantities, speeds, placement)
        else:
            yield rows, (quantities.take(rows), speeds.take(rows, of), placement.take(rows, of))

"""A step of a runtime that keeps weights, optimizer or activations off the GPU.

    floor = floor_of_step(quantities, speeds, placement, habits)      every row, closed form
    seconds = seconds_of_step(quantities, speeds, placement, habits)  finalists: longest path
    work = step_work(quantities.take([i]), ...)                       one row: lanes, what binds

`floor_of_step` is `Work.floor` of the same row and never above `seconds_of_step`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainplan.costmodel.lanes.loads import (
    FloatColumn,
    Load,
    Order,
    floor_seconds,
)
from trainplan.costmodel.lanes.passes import micro_batches, pass_items, pass_loads
from trainplan.costmodel.lanes.placed import (
    BoolColumn,
    Habits,
    Placement,
    Quantities,
    Speeds,
)
from trainplan.costmodel.lanes.update import update_load, update_part
from trainplan.costmodel.lanes.work import Part, Work


def step_work(quantities: Quantities, speeds: Speeds, placement: Placement, habits: Habits) -> Work:
    """A step of a single row as items."""
    delayed = bool(_column(placement.delayed, 1)[0])
    pipelined = bool(_pipelined(placement, habits, 1)[0])
    kinds = micro_batches(
        _column(quantities.micro_batches, 1), habits, off=_column(placement.updates_off, 1)
    )
    passes = tuple(
        Part(
            pass_items(quantities, speeds, placement, habits, kind),
            _order(habits, delayed=delayed),
            int(times[0]),
        )
        for kind, times in kinds
        if times[0]
    )
    update = update_part(quantities, speeds, placement, habits, pipelined=pipelined)
    return Work((update, *passes) if delayed else (*passes, update))


def step_loads(
    quantities: Quantities, speeds: Speeds, placement: Placement, habits: Habits
) -> tuple[Load, ...]:
    """A step of rows that agree in what is delayed and pipelined, seconds by lane."""
    rows = quantities.rows
    delayed = bool(np.any(placement.delayed))
    pipelined = bool(np.any(_pipelined(placement, habits, rows)))
    order = _order(habits, delayed=delayed)
    count = _column(quantities.micro_batches, rows)
    passes = tuple(
        Load(pass_loads(quantities, speeds, placement, habits, kind), order, times)
        for kind, times in micro_batches(count, habits, off=_column(placement.updates_off, rows))
    )
    update = update_load(quantities, speeds, placement, habits, pipelined=pipelined)
    return (update, *passes) if delayed else (*passes, update)


def floor_of_step(
    quantities: Quantities, speeds: Speeds, placement: Placement, habits: Habits
) -> FloatColumn:
    """Least seconds (row,) of a step, the update included. Source: `floor_seconds`."""
    floor = np.empty(quantities.rows)
    for rows, alike in _alike(quantities, speeds, placement, habits):
        floor[rows] = floor_seconds(step_loads(*alike, habits))
    return floor


def seconds_of_step(
    quantities: Quantities, speeds: Speeds, placement: Placement, habits: Habits
) -> FloatColumn:
    """Seconds (row,) of a step as each row's longest path. Source: `Work.makespan`."""
    of = quantities.rows
    rows = ([row] for row in range(of))
    works = (
        step_work(quantities.take(row), speeds.take(row, of), placement.take(row, of), habits)
        for row in rows
    )
    return np.array([float(work.makespan[0]) for work in works])


def _order(habits: Habits, *, delayed: bool) -> Order:
    """How the passes of micro batches wait for each other.

    A micro batch ends when its gradients have left the GPU: DeepSpeed synchronizes there. Only
    beside a delayed update they run on.
    Source: DeepSpeed 0.19.8, runtime/zero/stage3.py and stage_1_and_2.py,
    independent_gradient_partition_epilogue.
    """
    if delayed:
        return Order.BESIDE
    return Order.ROUNDS if habits.overlaps else Order.CHAIN


def _pipelined(placement: Placement, habits: Habits, rows: int) -> BoolColumn:
    """Rows whose subgroups are updated beside each other: by habit, on the GPU too, or delayed."""
    chosen = (_column(placement.stride, rows) > 0) | _column(placement.delayed, rows)
    return np.asarray(chosen | habits.pipelines_update)


def _column(value: ArrayLike, rows: int) -> NDArray[Any]:
    """A column of as many rows."""
    return np.broadcast_to(np.asarray(value), (rows,))


def _alike(
    quantities: Quantities, speeds: Speeds, placement: Placement, habits: Habits
) -> Iterator[tuple[BoolColumn, tuple[Quantities, Speeds, Placement]]]:
    """Rows that agree in what is delayed and pipelined, together."""
    of = quantities.rows
    key = _column(placement.delayed, of) + 2 * _pipelined(placement, habits, of)
    for value in np.unique(key):
        rows = key == value
        if rows.all():
            yield rows, (quantities, speeds, placement)
        else:
            yield rows, (quantities.take(rows), speeds.take(rows, of), placement.take(rows, of))

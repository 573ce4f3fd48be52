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
from trainplan.costmodel.copy_streams.placement import (
    BoolColumn,
    Column,
    Place,
    Placement,
    Quantities,
    Speeds,
)
from trainplan.costmodel.copy_streams.transfer_volume import (
    FloatColumn,
    Lane,
    LaneRows,
    Load,
    Order,
    floor_seconds,
    lane_rows,
)
from trainplan.costmodel.copy_streams.work import Item, Part, Work

STATE_BYTES = 12
"""Of one parameter in Adam: fp32 weights and two moments, which a subgroup takes to the GPU and
back. Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3.1 (K = 12)."""


def subgroups(away: FloatColumn, policy: OffloadPolicy) -> FloatColumn:
    """Pieces in which `away` parameters are updated.

    Source: DeepSpeed 0.19.8, runtime/zero/config.py, sub_group_size: parameters are taken in tiles
    of at most that many.
    """
    return np.maximum(policy.subgroups, np.ceil(away / policy.subgroup_params))


def gpu_subgroups(subgroups: FloatColumn, stride: FloatColumn | int) -> FloatColumn:
    """Subgroups of the offloaded states that the GPU updates: every `stride`-th.

    Source: Maurya et al., Deep Optimizer States, arXiv:2410.21316 (interleaved offloading: one
    of each k subgroups is moved to the GPU for its update).
    """
    stride = np.asarray(stride)
    return np.where(stride > 0, subgroups // np.maximum(1, stride), 0).astype(np.float64)


def serial_added_seconds(
    moved: FloatColumn, wire: Column, update: Column, saved: Column
) -> FloatColumn:
    """What the update of `moved` parameters takes more than on the GPU, one thing after the other.

    Seconds a parameter: of gradients out and weights back, of the CPUs' update, of the GPU's.
    Source: Ren et al., ZeRO-Offload, arXiv:2101.06840, without delayed update; the
    chain of `megatron_offload_policy` in one line.
    """
    return np.asarray(moved * np.maximum(0.0, wire + update - saved))


def _seconds(
    quantities: Quantities,
    speeds: Speeds,
    placement: Placement,
    policy: OffloadPolicy,
    *,
    pipelined: bool,
) -> tuple[LaneRows, LaneRows, LaneRows]:
    """Seconds (lane, row) of a subgroup by the CPUs, by the GPU, and of what never left the GPU.

    Where subgroups run beside each other, states of one are read while those of another are
    written: drives then have the speed of both ways at once.
    Source: DeepSpeed 0.19.8, runtime/zero/stage3.py, step: states and gradients are read, updated,
    weights in 16 bits copied to where they lie, states written; Megatron-LM
    core/optimizer/cpu_offloading/hybrid_optimizer.py, step: gradients leave first.
    """
    away = quantities.updated * placement.optimizer
    one = away / subgroups(away, policy)
    rate = np.zeros_like(away)
    np.divide(quantities.update_seconds, quantities.updated, out=rate, where=quantities.updated > 0)
    deep = np.asarray(placement.optimizer_place) == Place.DRIVE
    weights = np.asarray(placement.parameters)
    out = policy.gradient_bytes * policy.gradients_with_update
    written = policy.state_write_bytes * deep + policy.weight_bytes * (weights == Place.DRIVE)
    rows, both = quantities.rows, (speeds.drive_both if pipelined else np.inf)
    read, write = np.minimum(speeds.drive_read, both), np.minimum(speeds.drive_write, both)
    by_cpu = {
        Lane.D2H: one * out / speeds.d2h,
        Lane.DRIVE_READ: one * policy.state_read_bytes * deep / read,
        Lane.CPU: one / speeds.cpu_params,
        Lane.H2D: one * policy.weight_bytes * (weights == Place.DEVICE) / speeds.h2d,
        Lane.DRIVE_WRITE: one * written / write,
    }
    by_gpu = {
        Lane.H2D: one * STATE_BYTES / speeds.h2d,
        Lane.GPU: one * rate,
        Lane.D2H: one * STATE_BYTES / speeds.d2h,
    }
    stays = {Lane.GPU: (quantities.updated - away) * rate}
    return lane_rows(rows, by_cpu), lane_rows(rows, by_gpu), lane_rows(rows, stays)


IN_ORDER = (
    (Lane.D2H, "gradients"),
    (Lane.DRIVE_READ, "read states"),
    (Lane.CPU, "Adam"),
    (Lane.H2D, "weights"),
    (Lane.DRIVE_WRITE, "write states"),
)
"""What the update of a subgroup by the CPUs does, one after the other."""
THERE_AND_BACK = ((Lane.H2D, "fetch"), (Lane.GPU, "update"), (Lane.D2H, "return"))


def update_load(
    quantities: Quantities,
    speeds: Speeds,
    placement: Placement,
    policy: OffloadPolicy,
    *,
    pipelined: bool,
) -> Load:
    """The update by lane; `pipelined` if subgroups run beside each other, else a chain.

    Source: derived, subgroups on the GPU and on the CPUs times the seconds of one, `gpu_subgroups`.
    """
    cpu, gpu, stays = _seconds(quantities, speeds, placement, policy, pipelined=pipelined)
    count = subgroups(quantities.updated * placement.optimizer, policy)
    on_gpu = gpu_subgroups(count, np.asarray(placement.stride))
    moved = cpu * (count - on_gpu) + gpu * on_gpu
    if pipelined:
        return Load(moved + stays, Order.OVERLAPPED)
    return Load(moved, Order.CHAIN, aside=stays)


def update_part(
    quantities: Quantities,
    speeds: Speeds,
    placement: Placement,
    policy: OffloadPolicy,
    *,
    pipelined: bool,
) -> Part:
    """The update of a single row."""
    cpu, gpu, stays = _seconds(quantities, speeds, placement, policy, pipelined=pipelined)
    count = int(subgroups(quantities.updated * placement.optimizer, policy)[0])
    stay = tuple(_chain(stays, ((Lane.GPU, "update what stays"),), ""))
    if not pipelined:
        return Part(tuple(_chain(cpu * count, IN_ORDER, "")), Order.CHAIN, aside=stay)
    stride = int(np.asarray(placement.stride).reshape(-1)[0])
    items = list(stay)
    for index in range(count):
        theirs = stride and index % stride == stride - 1
        seconds, order = (gpu, THERE_AND_BACK) if theirs else (cpu, IN_ORDER)
        items += _chain(seconds, order, f" {index}")
    return Part(tuple(items), Order.OVERLAPPED)


def _chain(seconds: LaneRows, order: tuple[tuple[Lane, str], ...], suffix: str) -> list[Item]:
    """One after the other what takes any time."""
    items: list[Item] = []
    for lane, name in order:
        if seconds[lane].any():
            after = (items[-1].name,) if items else ()
            items.append(Item(f"{name}{suffix}", lane, seconds[lane], after))
    return items


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

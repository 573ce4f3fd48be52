"""A step of a runtime that keeps weights, optimizer or activations off the GPU.

    step = Offloaded(quantities, speeds, placement, policy)
    floor = floor_of_step(step)        every row, closed form
    seconds = seconds_of_step(step)    finalists: longest path
    work = step_work(step.take([i]))   one row: lanes, what binds

`floor_of_step` is `Work.floor` of the same row and never above `seconds_of_step`.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainplan.costmodel.copy_streams.passes import Gradients, micro_batches, pass_items, pass_loads
from trainplan.costmodel.copy_streams.placement import (
    BoolColumn,
    Column,
    IntColumn,
    Offloaded,
    OffloadPolicy,
    Place,
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


def _seconds(step: Offloaded, *, pipelined: bool) -> tuple[LaneRows, LaneRows, LaneRows]:
    """Seconds (lane, row) of a subgroup by the CPUs, by the GPU, and of what never left the GPU.

    Where subgroups run beside each other, states of one are read while those of another are
    written: drives then have the speed of both ways at once.
    Source: DeepSpeed 0.19.8, runtime/zero/stage3.py, step: states and gradients are read, updated,
    weights in 16 bits copied to where they lie, states written; Megatron-LM
    core/optimizer/cpu_offloading/hybrid_optimizer.py, step: gradients leave first.
    """
    quantities, speeds, placement, policy = step.parts
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


def update_load(step: Offloaded, *, pipelined: bool) -> Load:
    """The update by lane; `pipelined` if subgroups run beside each other, else a chain.

    Source: derived, subgroups on the GPU and on the CPUs times the seconds of one, `gpu_subgroups`.
    """
    cpu, gpu, stays = _seconds(step, pipelined=pipelined)
    count = subgroups(step.quantities.updated * step.placement.optimizer, step.policy)
    on_gpu = gpu_subgroups(count, np.asarray(step.placement.stride))
    moved = cpu * (count - on_gpu) + gpu * on_gpu
    if pipelined:
        return Load(moved + stays, Order.OVERLAPPED)
    return Load(moved, Order.CHAIN, aside=stays)


def update_part(step: Offloaded, *, pipelined: bool) -> Part:
    """The update of a single row."""
    cpu, gpu, stays = _seconds(step, pipelined=pipelined)
    count = int(subgroups(step.quantities.updated * step.placement.optimizer, step.policy)[0])
    stay = tuple(_chain(stays, ((Lane.GPU, "update what stays"),), ""))
    if not pipelined:
        return Part(tuple(_chain(cpu * count, IN_ORDER, "")), Order.CHAIN, aside=stay)
    stride = int(np.asarray(step.placement.stride).reshape(-1)[0])
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


def step_work(step: Offloaded) -> Work:
    """A step of a single row as items."""
    delayed, pipelined = bool(_column(step.placement.delayed, 1)[0]), bool(_pipelined(step)[0])
    order = _order(step.policy, delayed=delayed)
    passes = tuple(
        Part(pass_items(step, kind), order, int(times[0]))
        for kind, times in _micro_batches(step)
        if times[0]
    )
    update = update_part(step, pipelined=pipelined)
    return Work((update, *passes) if delayed else (*passes, update))


def step_loads(step: Offloaded) -> tuple[Load, ...]:
    """A step of rows that agree in what is delayed and pipelined, seconds by lane."""
    delayed, pipelined = bool(np.any(step.placement.delayed)), bool(np.any(_pipelined(step)))
    order = _order(step.policy, delayed=delayed)
    passes = tuple(
        Load(pass_loads(step, kind), order, times) for kind, times in _micro_batches(step)
    )
    update = update_load(step, pipelined=pipelined)
    return (update, *passes) if delayed else (*passes, update)


def _micro_batches(step: Offloaded) -> list[tuple[Gradients, IntColumn]]:
    """Kinds of micro batches, and how many of each there are. Source: `micro_batches`."""
    rows = step.quantities.rows
    off = _column(step.placement.updates_off, rows)
    return micro_batches(_column(step.quantities.micro_batches, rows), step.policy, off=off)


def floor_of_step(step: Offloaded) -> FloatColumn:
    """Least seconds (row,) of a step, the update included. Source: `floor_seconds`."""
    floor = np.empty(step.quantities.rows)
    key = _column(step.placement.delayed, len(floor)) + 2 * _pipelined(step)
    for value in np.unique(key):  # rows that agree in what is delayed and pipelined, together
        rows = key == value
        floor[rows] = floor_seconds(step_loads(step if rows.all() else step.take(rows)))
    return floor


def seconds_of_step(step: Offloaded) -> FloatColumn:
    """Seconds (row,) of a step as each row's longest path. Source: `Work.makespan`."""
    works = (step_work(step.take([row])) for row in range(step.quantities.rows))
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


def _pipelined(step: Offloaded) -> BoolColumn:
    """Rows whose subgroups are updated beside each other: by policy, on the GPU too, or delayed."""
    rows = step.quantities.rows
    chosen = (_column(step.placement.stride, rows) > 0) | _column(step.placement.delayed, rows)
    return np.asarray(chosen | step.policy.pipelines_update)


def _column(value: ArrayLike, rows: int) -> NDArray[Any]:
    """A column of as many rows."""
    return np.broadcast_to(np.asarray(value), (rows,))

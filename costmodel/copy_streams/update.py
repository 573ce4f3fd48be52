"""The update of the optimizer's states, a share of them by the CPUs.

As in `passes`, seconds by lane of many rows in closed form and the same piece by piece for one.
"""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.copy_streams.offload_policies import OffloadPolicy
from trainplan.costmodel.copy_streams.placement import Column, Place, Placement, Quantities, Speeds
from trainplan.costmodel.copy_streams.transfer_volume import (
    FloatColumn,
    Lane,
    LaneRows,
    Load,
    Order,
    lane_rows,
)
from trainplan.costmodel.copy_streams.work import Item, Part

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

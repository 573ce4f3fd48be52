"""Seconds that a step takes longer because something is off the GPU: lanes next to its own.

The bound of a row and its longest path are two evaluations of one work (`copy_streams`).
Where a runtime offloads its optimizer alone, in series after the passes, the closed form of that
is `costmodel.traffic.offload.offload_seconds`; the items of the same step show what binds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, KindRankRows, distinct
from trainplan.costmodel.copy_streams import (
    Lane,
    Offloaded,
    OffloadPolicy,
    Place,
    Placement,
    Quantities,
    Speeds,
    Work,
    binding,
    floor_of_step,
    seconds_of_step,
    step_work,
)
from trainplan.costmodel.layout import TIERS
from trainplan.costmodel.layouts import moves_states
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory import (
    BlockParams,
    rank_params,
    updated_params,
)
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.shard_groups import shard_groups
from trainplan.costmodel.step.results import LaneUse
from trainplan.costmodel.swap_buffers import SUBGROUP_PARAMS
from trainplan.costmodel.traffic import CPU_ADAM_PARAMS_PER_SECOND

if TYPE_CHECKING:
    from trainplan.costmodel.step.estimate import Priced


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One of the two evaluations of the same work."""

    of_rows: Callable[[Offloaded], FloatColumn]
    of_items: Callable[[Work], FloatColumn]
    least: bool
    """No row takes less under any recomputation."""


FLOOR = Evaluation(floor_of_step, lambda work: work.floor, least=True)
LONGEST_PATH = Evaluation(seconds_of_step, lambda work: work.makespan, least=False)
TIER_PLACES = (Place.HOST, Place.DRIVE)
PARAMETER_PLACES = (Place.DEVICE, Place.HOST, Place.DRIVE)


def moving_rows(candidates: Candidates) -> BoolColumn:
    """Rows whose lanes overlap the GPU's: all that keep something off it, but in series."""
    if not candidates.traits.offloading.moves_overlapped:
        return np.zeros(len(candidates.table), dtype=bool)
    return moves_states(candidates.table)


def lanes_seconds(priced: Priced, evaluation: Evaluation) -> FloatColumn:
    """Seconds by which lanes off the GPU outlast a step that keeps all on it, 0 where none do.

    Source: derived; the same work is evaluated, of which the GPU alone takes its passes and its
    whole update. The rank that is delayed most delays the step.
    """
    moving = np.flatnonzero(moving_rows(priced))
    found, work = np.zeros(len(priced.table)), priced.traits.offloading.work
    speeds, placement = speeds_of(priced.machine), placement_of(priced)
    for number in range(len(priced.ranks.embedding) if len(moving) else 0):
        quantities = quantities_of(priced, number, least=evaluation.least)
        passes = quantities.layers * (quantities.forward + quantities.backward)
        alone = quantities.micro_batches * passes.sum(axis=0) + quantities.update_seconds
        for rows, policy in _alike(priced, quantities, moving):
            some = quantities.take(rows), speeds, placement.take(rows, len(found))
            step = Offloaded(*some, policy)
            if work is None:
                seconds = evaluation.of_rows(step)
            else:
                works = (work(*step.take([one]).parts[:3]) for one in range(len(rows)))
                seconds = np.array([float(evaluation.of_items(one)[0]) for one in works])
            found[rows] = np.maximum(found[rows], seconds - alone[rows])
    return found


def row_work(priced: Priced, row: int) -> Work | None:
    """The items of one row, of the rank that is delayed most; none where nothing moves."""
    moved = priced.traits.offloading
    if moved.offload_policy is None or not moves_states(priced.table)[row]:
        return None
    works, only = [], np.array([row])
    speeds, placement = speeds_of(priced.machine), placement_of(priced).take(only, len(priced.key))
    for number in range(len(priced.ranks.embedding)):
        quantities = quantities_of(priced, number)
        [(_, policy)] = _alike(priced, quantities, only)
        some = quantities.take(only), speeds, placement
        works.append(moved.work(*some) if moved.work else step_work(Offloaded(*some, policy)))
    return max(works, key=lambda work: float(work.makespan[0]))


def lane_uses(priced: Priced, row: int) -> tuple[LaneUse, ...]:
    """What each lane of a row does, most binding first; empty where nothing moves.

    Source: `Work`; a lane twice as fast saves what the longest path of the same items then lacks,
    off the GPU no more than the step outlasts one that keeps all on it.
    """
    work = row_work(priced, row)
    if work is None:
        return ()
    path, busy = binding(work), work.lane_seconds[:, 0]
    most = float(priced.offload[row])
    uses = [
        LaneUse(
            lane=lane.plain,
            busy_s=float(busy[lane]),
            binding_s=path.get(lane, 0.0),
            saved_if_twice_as_fast_s=min(
                float(work.saved_seconds(lane)[0]), np.inf if lane is Lane.GPU else most
            ),
        )
        for lane in Lane
        if busy[lane] > 0
    ]
    return tuple(sorted(uses, key=lambda use: -use.binding_s))


def written_bytes(priced: Priced, row: int) -> float:
    """Bytes that the drives of a node take in a step.

    Source: derived; seconds of its lane times its speed, of all GPUs of the node, as if reads did
    not slow writes.
    """
    drives = priced.machine.drives
    if drives is None or not drives.write_bytes_per_second:
        return 0.0
    alone = replace(priced.machine, drives=replace(drives, both_bytes_per_second=None))
    work, speed = row_work(replace(priced, machine=alone), row), float(speeds_of(alone).drive_write)
    if work is None:
        return 0.0
    return float(work.lane_seconds[Lane.DRIVE_WRITE, 0]) * speed * priced.machine.gpus_per_node


def _alike(
    priced: Priced, quantities: Quantities, rows: IntColumn
) -> Iterator[tuple[IntColumn, OffloadPolicy]]:
    """Rows of one ZeRO stage, tier and number of subgroups, with what the runtime then does."""
    table, offload_policy = priced.table, priced.traits.offloading.offload_policy
    assert offload_policy is not None
    share = quantities.updated * table.offload_optimizer
    most = priced.traits.offloading.subgroup_params or SUBGROUP_PARAMS
    pieces = np.maximum(1, np.ceil(share / most)).astype(np.int64)
    columns = (table.zero_stage[rows], table.offload_tier[rows], pieces[rows])
    first, key = distinct(*columns)
    for number, one in enumerate(first.tolist()):
        stage, tier, subgroups = (int(column[one]) for column in columns)
        yield (
            rows[key == number],
            replace(offload_policy(stage, TIER_PLACES[tier]), subgroups=subgroups),
        )


def speeds_of(machine: Machine) -> Speeds:
    """Speeds of one GPU's share while all GPUs of its node do the same.

    Source: derived; the drives and the processors of a node serve all of its GPUs, equally, at the
    same time, so each has the same share of both.
    """
    drives, gpus = machine.drives, machine.gpus_per_node
    adam = machine.cpu_adam_params_per_second or CPU_ADAM_PARAMS_PER_SECOND
    read = drives.read_bytes_per_second if drives else None
    write = drives.write_bytes_per_second if drives else None
    both = drives.both_bytes_per_second if drives else None
    return Speeds(
        h2d=machine.host_bytes_per_second,
        d2h=machine.host_bytes_per_second,
        drive_read=read / gpus if read else np.inf,
        drive_write=write / gpus if write else np.inf,
        drive_both=both / gpus if both else np.inf,
        cpu_params=adam / gpus,
    )


def placement_of(candidates: Candidates) -> Placement:
    """What layouts keep where."""
    table, moved = candidates.table, candidates.traits.offloading
    return Placement(
        optimizer=table.offload_optimizer,
        optimizer_place=np.array(TIER_PLACES)[table.offload_tier],
        parameters=np.array(PARAMETER_PLACES)[table.offload_parameters],
        checkpoints=table.offload_checkpoints,
        checkpoints_place=TIER_PLACES[TIERS.index(moved.checkpoints_tier)],
        stride=table.offload_stride,
        delayed=moved.delays,
    )


def quantities_of(priced: Priced, number: int, *, least: bool = False) -> Quantities:
    """What a rank class does in a step if everything lies on the GPU, by its number.

    `least` counts no more kept bytes of a layer than its input, which every recomputation keeps.
    Source: derived; a rank runs the blocks it holds one after the other, the embedding first and
    the head last, and a block recomputed in full runs forward once more.
    """
    table, storage = priced.table, priced.job.training.storage_bytes
    held = rank_params(priced.ranks, priced.params)
    updated = updated_params(table, held)
    gradient = float(max(priced.traits.gradients.accumulated_bytes, storage))
    again = _repeated(priced.ranks, number)
    nothing = np.zeros(len(table))
    inputs = priced.blocks.layer_input_bytes[priced.key]
    kept = [
        inputs if least else share * inputs + (1 - share) * layer.saved_bytes
        for share, layer in zip(again, priced.gathered.layers, strict=True)
    ]
    backward = [
        one.backward + share * one.recompute_forward
        for one, share in zip(priced.seconds.by_kind, [*again, *[nothing] * 3], strict=True)
    ]
    return Quantities(
        micro_batches=priced.microbatches,
        layers=_in_order([one[number] for one in priced.ranks.by_kind]),
        forward=_in_order([one.forward for one in priced.seconds.by_kind]),
        backward=_in_order(backward),
        weight_bytes=_fetched_bytes(priced) * _sharded(priced, priced.params),
        gradient_bytes=gradient * _sharded(priced, priced.params.with_gradients),
        checkpoint_bytes=_in_order([*kept, *[nothing] * 3]),
        updated=updated[number],
        update_seconds=priced.optimizer,
    )


def _fetched_bytes(priced: Priced) -> float:
    """Bytes of a weight that lies off the GPU: as stored, or its master copy where that is it.

    Source: PyTorch 2.14, torch/distributed/fsdp/_fully_shard/_fsdp_param.py, all_gather_inputs: a
    shard is copied as it is and cast on the GPU.
    """
    footprint, storage = priced.traits.footprint, priced.job.training.storage_bytes
    return float(footprint.master_bytes if footprint.sharded_weights_are_master else storage)


def _in_order(by_kind: list[FloatColumn]) -> KindRankRows:
    """Each kind of layer, embedding, head, MTP as a micro batch meets them.

    Source: as `quantities_of`.
    """
    *layers, embedding, head, mtp = by_kind
    return np.stack([embedding, *layers, mtp, head]).astype(np.float64)


def _repeated(ranks: Ranks, number: int) -> list[FloatColumn]:
    """Share of the layers of each kind on a rank class that run forward again."""
    pairs = zip(ranks.recomputed, ranks.layers, strict=True)
    return [again[number] / np.maximum(1.0, count[number]) for again, count in pairs]


def _sharded(priced: Priced, params: BlockParams) -> KindRankRows:
    """Parameters of a block of each kind that a rank keeps or sends: its share of them.

    Source: `ShardGroups`.
    """
    shared, expert = (groups.optimizer for groups in shard_groups(priced))
    layers = zip(params.layers, params.experts, strict=True)
    return _in_order(
        [
            *(one / shared + experts / expert for one, experts in layers),
            (params.embedding + params.tower.trained) / shared,
            params.head / shared,
            params.mtp / shared + params.mtp_experts / expert,
        ]
    )

"""Pipelines whose ranks are in different node groups, each rank at the pace of its own.

Every row is priced once on the machine of each node group. What a rank takes and holds comes from
the part of its group; a message between groups takes what their join lets through. All else is as
in `costmodel.step.estimate` and `costmodel.step.timelines`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np

from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    IntColumn,
    RankRows,
    RowBoundaries,
    distinct,
)
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory import MemoryTable, rank_params, updated_params
from trainplan.costmodel.pipeline import group_jobs, pipeline_lower_bound, rank_groups, stage_groups
from trainplan.costmodel.schedules import RankSeconds, earliest_ends
from trainplan.costmodel.step.estimate import Priced, price, with_overhead
from trainplan.costmodel.step.group_links import boundary_seconds, link_bound
from trainplan.costmodel.step.timelines import SimulatedTable, rank_ends, virtual_stage_seconds
from trainplan.costmodel.timeline import StageSeconds
from trainplan.costmodel.traffic import (
    exposed_seconds,
    rank_offload_seconds,
    rank_optimizer_seconds,
    rank_update_seconds,
)

IntRankRows = IntColumn  # (rank, row)


@dataclass(frozen=True, slots=True)
class Pipelines:
    """Rows of one pipeline shape; matrices have shape (row, stage) or (row, boundary)."""

    rows: IntColumn
    shape: tuple[str, int, int, int]
    """Schedule, pp, vpp, micro batches."""
    seconds: StageSeconds
    p2p: RowBoundaries
    """Seconds of a message between each stage and the next."""
    wire: RowBoundaries
    """Of these, how long it keeps the join of two groups busy; 0 inside a group."""


@dataclass(frozen=True, slots=True)
class HeterogeneousStep:
    """Layouts whose stages name their node groups."""

    parts: tuple[Priced, ...]
    """Every row on the machine of each node group."""
    group: IntRankRows
    """Node group of every pipeline rank, the last rank repeated."""
    pipelines: tuple[Pipelines, ...]
    whole: Priced
    """Every rank as in the part of its group; `blocks` and `seconds` are those of the first."""

    @property
    def capacity(self) -> RankRows:
        """Device memory of the GPUs of every rank. Source: that of their group."""
        return np.array([one.machine.memory_bytes for one in self.parts])[self.group]

    def fits(self, margin: float) -> BoolColumn:
        """Has every rank room, with a share of its memory to spare?"""
        memory = self.whole.memory
        used = memory.reserved + memory.outside_bytes
        return np.asarray((used <= self.capacity * (1 - margin)).all(axis=0))

    def simulated(self) -> SimulatedTable:
        """As `step.timelines.simulate`; no step ends before the joins have carried its messages.

        Where they have not, the drain of the pipeline waits for them.
        """
        priced = self.whole
        with_messages, instant, dp_comm = np.zeros((3, len(priced.table)))
        for one in self.pipelines:
            rows, own_start = one.rows, priced.seconds.unsynchronised[one.rows]
            ends, at_once = rank_ends(one.shape, one.seconds, one.p2p, own_start)
            busy = link_bound(one.shape, one.seconds, one.p2p, one.wire) * ~own_start
            ends = ends + np.maximum(0.0, busy - ends.max(axis=1))[:, None]
            with_messages[rows] = ends.max(axis=1)
            instant[rows] = np.minimum(at_once.max(axis=1), with_messages[rows])
            traffic = priced.traffic[: one.shape[1], rows]
            dp_comm[rows] = exposed_seconds(with_messages[rows], ends.T, traffic)
        return SimulatedTable(with_messages, instant, dp_comm)

    def row(self, index: int) -> Priced:
        """`whole` with the blocks of the group of one row's busiest rank."""
        busiest = int(np.argmax(self.whole.work.pair[:, index]))
        part = self.parts[int(self.group[busiest, index])]
        return replace(self.whole, gathered=part.gathered, seconds=part.seconds)


def price_heterogeneous(candidates: Candidates) -> HeterogeneousStep:
    """As `costmodel.step.estimate.price`, of layouts whose stages name their node groups."""
    parts = tuple(price(one, merged=False) for one in on_groups(candidates))
    machine, table = candidates.machine, parts[0].table
    group = _groups_of_ranks(table)
    pipelines = tuple(_pipelines(candidates.with_table(table), parts))
    work = _work(parts, group, pipelines)
    microbatches, ranks = parts[0].microbatches, parts[0].ranks
    bound = pipeline_lower_bound(work, ranks, table, microbatches)
    traffic = picked([part.traffic for part in parts], group)
    dp_comm = exposed_seconds(bound, earliest_ends(work, microbatches), traffic)
    optimizer, offload = _update(machine, parts[0], group)
    whole = replace(
        parts[0],
        job=candidates.job,
        machine=machine,
        work=work,
        memory=_memory(parts, group),
        traffic=traffic,
        dp_comm=dp_comm,
        optimizer=optimizer,
        offload=offload,
        step_seconds=with_overhead(machine, bound + dp_comm + optimizer + offload),
    )
    return HeterogeneousStep(parts, group, pipelines, whole)


def on_groups(candidates: Candidates) -> list[Candidates]:
    """Layouts on the machine of each node group."""
    pairs = zip(group_jobs(candidates.job), candidates.machine.groups, strict=True)
    return [replace(candidates, job=job, machine=machine) for job, machine in pairs]


def heterogeneous_seconds(heterogeneous: HeterogeneousStep) -> FloatColumn:
    """Step time of every row, simulated. Source: as `costmodel.step.simulate.step_seconds`."""
    pipeline = heterogeneous.simulated()
    explained = pipeline.with_messages + pipeline.dp_comm + heterogeneous.whole.update
    return with_overhead(heterogeneous.whole.machine, explained)


def picked(parts: Sequence[FloatColumn], group: IntColumn) -> FloatColumn:
    """Of matrices of one shape, one for each group, the entry of each place's group.

    Source: nothing is computed: the group of a place is an index into the stacked matrices, and the
    entry found there is taken as it is.
    """
    stack = np.stack([np.broadcast_to(part, group.shape) for part in parts])
    return np.asarray(np.take_along_axis(stack, group[None], axis=0)[0])


def _groups_of_ranks(table: LayoutTable) -> IntColumn:
    result = np.zeros((int(table.pp.max()), len(table)), dtype=np.int64)
    for row, stages in enumerate(table.stages):
        groups = rank_groups(stages, int(table.schedule[row]), int(table.pp[row]))
        result[: len(groups), row], result[len(groups) :, row] = groups, groups[-1]
    return result


def _pipelines(candidates: Candidates, parts: Sequence[Priced]) -> list[Pipelines]:
    """Rows of each shape, with the seconds of stages and messages.

    Source: a stage takes what it takes on the machine of its group, which the part priced there
    knows; messages between stages are those of `boundary_seconds`.
    """
    table, microbatches = candidates.table, parts[0].microbatches
    first, code = distinct(table.schedule, table.pp, table.vpp, microbatches)
    found = []
    for number, one in enumerate(first.tolist()):
        rows = np.flatnonzero(code == number)
        some = candidates.take(rows)
        group = np.array([stage_groups(stages) for stages in some.table.stages])
        of_parts = [virtual_stage_seconds(part, rows) for part in parts]
        forward, backward, weight = (
            picked([getattr(part, name) for part in of_parts], group)
            for name in ("forward", "backward", "weight")
        )
        seconds = StageSeconds(forward, backward, weight)
        p2p, wire = boundary_seconds(some, group)
        pp, vpp = int(table.pp[one]), int(table.vpp[one])
        shape = candidates.schedule_of(one), pp, vpp, int(microbatches[one])
        found.append(Pipelines(rows, shape, seconds, p2p, wire))
    return found


def _work(parts: Sequence[Priced], group: IntColumn, pipelines: Sequence[Pipelines]) -> RankSeconds:
    """Work of each rank in its group, and the way to it through the groups of the others.

    Source: as `pipeline.bound.rank_seconds`, but the way to a rank is summed stage by stage,
    because each stage takes the seconds of its own group.
    """
    reach, home = np.zeros((2, *group.shape))
    for one in pipelines:
        pp, split = one.shape[1], parts[0].seconds.splits_backward[one.rows][:, None]
        sent = one.seconds.backward - split * one.seconds.weight
        for way, passes in ((reach, one.seconds.forward), (home, sent)):
            ahead = np.cumsum(passes[:, : pp - 1] + one.p2p[:, : pp - 1], axis=1).T
            way[1:pp, one.rows] = ahead
            way[pp:, one.rows] = ahead[-1]
    forward, backward, weight = (
        picked([getattr(part.work, name) for part in parts], group)
        for name in ("forward", "backward", "weight")
    )
    unsynchronised = parts[0].work.unsynchronised
    return RankSeconds(
        forward, backward, weight=weight, reach=reach, home=home, unsynchronised=unsynchronised
    )


def _memory(parts: Sequence[Priced], group: IntColumn) -> MemoryTable:
    whole = ("outside_bytes", "off_device", "follows", "logits")
    names = [f.name for f in fields(MemoryTable) if f.name not in whole]
    columns = {name: picked([getattr(p.memory, name) for p in parts], group) for name in names}
    return MemoryTable(
        **columns,
        outside_bytes=np.max([p.memory.outside_bytes for p in parts], axis=0),
        off_device=reduce(lambda a, b: a.fullest(b), (p.memory.off_device for p in parts)),
        follows=parts[0].memory.follows,
        logits=parts[0].memory.logits,
    )


def _update(machine: Machine, priced: Priced, group: IntColumn) -> tuple[FloatColumn, FloatColumn]:
    """Seconds of the optimizer step on the slowest rank, and what offloading it adds.

    Source: as `costmodel.traffic.data_parallel`, each rank on the machine of its group.
    """
    table = priced.table
    held = rank_params(priced.ranks, priced.params)
    updated = updated_params(table, held)
    own = [
        rank_optimizer_seconds(one, table, held, updated)
        + rank_update_seconds(priced, one, priced.ranks)
        for one in machine.groups
    ]
    away = [rank_offload_seconds(one, table, updated) for one in machine.groups]
    return picked(own, group).max(axis=0), picked(away, group).max(axis=0)

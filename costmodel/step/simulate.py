"""The finalists: run their schedules on a clock and account for every second and byte."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trainplan.costmodel.base import TERA, Identical
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.lengths import real_tokens_per_step
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.model import model_flop_per_step
from trainplan.costmodel.pipeline import in_groups
from trainplan.costmodel.step.estimate import Priced, local_seconds, price, with_overhead
from trainplan.costmodel.step.heterogeneous import (
    HeterogeneousStep,
    heterogeneous_seconds,
    price_heterogeneous,
)
from trainplan.costmodel.step.offloaded import lane_uses, written_bytes
from trainplan.costmodel.step.results import (
    VALUES,
    Estimate,
    Idle,
    LaneUse,
    Memory,
    NodeMemory,
    RankMemory,
    Terms,
)
from trainplan.costmodel.step.timelines import Makespans, simulate
from trainplan.costmodel.uncertainty import (
    Interval,
    fit_chance,
    kind_of_run,
    peak_scale,
    step_time_interval,
)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Layouts with their schedules simulated: columns, and all of a row where it is needed."""

    step_time_s: FloatColumn
    peak_reserved_bytes: FloatColumn
    """As in `Memory`."""
    fits: BoolColumn
    row: Callable[[int], Estimate]
    """All a layout is expected to cost, by its place."""


def simulated(candidates: Candidates, memory_margin: float) -> Simulated:
    """Price every row with its schedule simulated.

    `memory_margin` is the share of device memory that must stay free for `fits`.
    Source: as `step_seconds`; the terms of a row are separated when it is read.
    """
    grouped = in_groups(candidates.table)
    if grouped.any():
        return _with_groups(candidates, memory_margin)
    priced = price(candidates, merged=False).with_lanes_run()
    makespans, used = simulate(priced), priced.memory.used
    explained = makespans.with_messages + makespans.dp_comm + priced.update
    fits = priced.memory.fits(candidates.machine.memory_bytes * (1 - memory_margin))

    def row(index: int) -> Estimate:
        return _estimate(priced, index, makespans=makespans.row(index), margin=memory_margin)

    return Simulated(with_overhead(candidates.machine, explained), used, fits, row)


def _with_groups(candidates: Candidates, margin: float) -> Simulated:
    """As `simulated`, where stages of some rows name their node groups."""
    found = explicit(candidates, memory_margin=margin)
    return Simulated(
        np.array([one.step_time_s for one in found]),
        np.array([one.memory.peak_reserved_bytes for one in found]),
        np.array([one.memory.fits for one in found]),
        found.__getitem__,
    )


def explicit(candidates: Candidates, *, memory_margin: float = 0.0) -> tuple[Estimate, ...]:
    """Price every row with its schedule simulated; for a few rows. As `simulated`."""
    grouped = in_groups(candidates.table)
    if grouped.any() and not grouped.all():
        some = candidates.take(grouped), candidates.take(~grouped)
        both = [explicit(one, memory_margin=memory_margin) for one in some]
        found = iter(both[0]), iter(both[1])
        return tuple(next(found[0 if heterogeneous else 1]) for heterogeneous in grouped.tolist())
    if grouped.any():
        return _explicit_heterogeneous(price_heterogeneous(candidates), memory_margin)
    one = simulated(candidates, memory_margin)
    return tuple(map(one.row, range(len(grouped))))


def step_seconds(candidates: Candidates) -> FloatColumn:
    """Step time of every row with its schedule simulated.

    Source: as `costmodel.step.estimate.price`, with the simulated pipeline for its bound.
    """
    grouped = in_groups(candidates.table)
    if grouped.any() and not grouped.all():
        seconds = np.empty(len(grouped))
        for rows in (grouped, ~grouped):
            seconds[rows] = step_seconds(candidates.take(rows))
        return seconds
    if grouped.any():
        return heterogeneous_seconds(price_heterogeneous(candidates))
    return simulated(candidates, 0.0).step_time_s


def _explicit_heterogeneous(
    heterogeneous: HeterogeneousStep, margin: float
) -> tuple[Estimate, ...]:
    """As `explicit`, of layouts whose stages name their node groups.

    Memory is that of the rank with least to spare.
    """
    simulated = heterogeneous.simulated()
    found = []
    for row, makespans in enumerate(map(simulated.row, range(len(heterogeneous.whole.table)))):
        one = _estimate(heterogeneous.row(row), row, makespans=makespans, margin=margin)
        found.append(replace(one, memory=_tightest(heterogeneous, row, one.memory, margin)))
    return tuple(found)


def _tightest(heterogeneous: HeterogeneousStep, row: int, memory: Memory, margin: float) -> Memory:
    """Memory of all ranks, each in the GPUs of its group; the peaks are of the fullest one."""
    table, capacity = heterogeneous.whole.memory, heterogeneous.capacity[:, row]
    used = table.reserved[:, row] + table.outside_bytes[row]
    fullest = int(np.argmax(used - capacity * (1 - margin)))
    return replace(
        memory,
        peak_allocated_bytes=float(table.allocated[fullest, row]),
        peak_reserved_bytes=float(used[fullest]),
        capacity_bytes=float(capacity[fullest]),
        fit_chance=fit_chance(
            float(used[fullest]), float(capacity[fullest]), peak_scale(heterogeneous.whole.job)
        ),
        peak_in_loss=bool(table.in_loss[fullest, row]),
        fits=bool((used <= capacity * (1 - margin)).all() and table.off_device.fits()[row]),
    )


def _estimate(priced: Priced, row: int, *, makespans: Makespans, margin: float) -> Estimate:
    job, machine = priced.job, priced.machine
    explained = makespans.with_messages + makespans.dp_comm + float(priced.update[row])
    step = float(with_overhead(machine, np.array([explained]))[0])
    tokens, flop = _counts(Identical(job))
    flop_per_second = flop / step / machine.num_gpus
    known = {
        "step_time_s": step,
        "lower_bound_s": float(priced.step_seconds[row]),
        "tokens_per_s_per_gpu": tokens / step / machine.num_gpus,
        "tflops_per_gpu": flop_per_second / TERA,
        "mfu": flop_per_second / _mean_peak(machine),
    }
    later = {
        "terms": lambda _: _terms(priced, row, makespans, step=step, speed=machine.speed),
        "memory": lambda _: _memory(priced, row, margin, step),
        "uncertainty": lambda one: _interval(priced, row, one),
        "lanes": lambda _: tuple(_in_step(machine, use) for use in lane_uses(priced, row)),
        "idle": lambda _: _idle(priced, row, makespans),
    }
    return Estimate.lazy(known, later)


@lru_cache(maxsize=64)
def _counts(job: Identical[Job]) -> tuple[int, float]:
    """Tokens and FLOPs of a step."""
    return real_tokens_per_step(job.of.training), model_flop_per_step(job.of)


def _interval(priced: Priced, row: int, one: Estimate) -> Interval:
    stage, graph = int(priced.table.zero_stage[row]), priced.traits.host.cuda_graph
    kind = kind_of_run(priced.job, graph, stage, one.terms.host / one.step_time_s)
    return step_time_interval(priced.job, priced.machine, one.step_time_s, kind)


def _mean_peak(machine: Machine) -> float:
    """FLOP/s of the mean GPU, whichever groups a layout's stages name.

    Source: Chowdhery et al., PaLM, arXiv:2204.02311, appendix B: over the peak of all chips used.
    """
    if not machine.groups:
        return machine.peak_flop_per_second
    peaks = [one.peak_flop_per_second for one in machine.groups]
    return float(np.average(peaks, weights=[one.num_gpus for one in machine.groups]))


def _terms(priced: Priced, row: int, makespans: Makespans, *, step: float, speed: float) -> Terms:
    """Seconds of the busiest rank by term; what is left of the makespan is bubble and messages."""
    pairs = priced.work.pair[:, row]
    rank, key = int(np.argmax(pairs)), int(priced.key[row])
    m, ranks, seconds = float(priced.microbatches[row]), priced.ranks, priced.seconds
    counts = [m * float(count[rank, row]) for count in ranks.by_kind]
    blocks = priced.blocks.by_kind
    busy = [
        (block.forward + block.backward).times(count, key)
        for block, count in zip(blocks, counts, strict=True)
    ]
    total = sum(busy[1:], start=busy[0])
    dropped = sum(
        count * block.recompute[row] for block, count in zip(seconds.by_kind, counts, strict=True)
    )
    repeated = sum(
        again[rank, row] * layer.recompute_forward[row]
        for again, layer in zip(ranks.recomputed, seconds.layers, strict=True)
    )
    layers = list(zip(counts, seconds.by_kind, strict=True))
    traffic = sum(count * layer.traffic[row] for count, layer in layers)
    waiting = sum(count * layer.waiting[row] for count, layer in layers)
    explained = makespans.with_messages + makespans.dp_comm + float(priced.update[row])
    catalog = Terms(
        gemm=float(total.gemm[0]),
        attention=float(total.attention[0]),
        elementwise=float(total.elementwise[0]),
        host=float(total.host[0]),
        tp_comm=float(total.tp_comm[0]),
        cp_comm=float(total.cp_comm[0]),
        ep_comm=float(total.ep_comm[0]),
        fsdp_comm=float(traffic),
        recompute=float(dropped + m * repeated),
        bubble=makespans.instant - m * float(pairs[rank]),
        p2p=makespans.with_messages - makespans.instant,
        dp_comm=makespans.dp_comm,
        optimizer=float(priced.optimizer[row]),
        offload=float(priced.offload[row] + waiting),
        outer_comm=0.0,
        overhead=0.0,
    )
    measured = Terms(*(value / speed for value in VALUES(catalog)))
    local = step
    if priced.job.outer:
        local = float(local_seconds(priced.machine, np.array([explained]))[0])
    return replace(measured, outer_comm=step - local, overhead=local - explained / speed)


def _idle(priced: Priced, row: int, makespans: Makespans) -> Idle:
    """Who waits until the last pass ends.

    Source: as `Timeline.bubble_fraction`: the makespan less the work of the mean rank.
    """
    pairs = priced.work.pair[: int(priced.table.pp[row]), row]
    waits = makespans.with_messages - float(priced.microbatches[row]) * float(pairs.mean())
    return Idle(int(np.argmax(pairs)), max(0.0, waits) / priced.machine.speed)


def _in_step(machine: Machine, use: LaneUse) -> LaneUse:
    """Saved seconds of the whole step, less where outer steps hide behind it.

    Source: `local_seconds` is linear.
    """
    saved = local_seconds(machine, np.array([0.0, use.saved_if_twice_as_fast_s]))
    return replace(use, saved_if_twice_as_fast_s=float(saved[1] - saved[0]))


def _node_memory(priced: Priced, row: int, step: float) -> NodeMemory:
    away, drives = priced.memory.off_device, priced.machine.drives
    written = written_bytes(priced, row)
    known = drives.written_bytes if drives else None
    return NodeMemory(
        host_bytes=float(away.host_used()[row]),
        host_capacity_bytes=None if np.isinf(away.host_limit) else float(away.host_limit),
        drive_bytes=float(away.drive_used()[row]),
        drive_capacity_bytes=drives.space_bytes if drives else None,
        drive_written_bytes=written,
        drive_life_s=known / written * step if known and written else None,
    )


def _memory(priced: Priced, row: int, margin: float, step: float) -> Memory:
    table, machine = priced.memory, priced.machine
    allocated = table.allocated[:, row]
    used = float(table.used[row])
    return Memory(
        peak_allocated_bytes=float(allocated.max()),
        peak_reserved_bytes=used,
        capacity_bytes=machine.memory_bytes,
        fits=bool(table.fits(machine.memory_bytes * (1 - margin))[row]),
        fit_chance=fit_chance(used, machine.memory_bytes, peak_scale(priced.job)),
        peak_in_loss=bool(table.in_loss[int(allocated.argmax()), row]),
        host=_node_memory(priced, row, step),
        pipeline_ranks=RankMemory.of_row(table, row, int(priced.table.pp[row])),
    )

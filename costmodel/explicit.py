"""The finalists: run their schedules on a clock and account for every second and byte."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np

from costmodel.data_parallel import exposed_seconds
from costmodel.estimate import Priced, price, with_overhead
from costmodel.flops import model_flop_per_step
from costmodel.machine import Machine
from costmodel.memory.overheads import COMMUNICATOR_BYTES, CONTEXT_BYTES
from costmodel.runtimes.base import RuntimeTraits
from costmodel.spec.job import Job
from costmodel.spec.layout import SCHEDULE_NAMES
from costmodel.stages import decoder_of, layers_again, stage_layers
from costmodel.table import FloatColumn, IntColumn, LayoutTable, distinct
from costmodel.timeline import rank_end_seconds
from costmodel.uncertainty import Interval, step_time_interval
from costmodel.units import TERA


@dataclass(frozen=True, slots=True)
class Terms:
    """Exposed seconds of one step on the busiest pipeline rank; they sum to the step time."""

    gemm: float
    attention: float
    elementwise: float
    host: float
    """The GPU waits for kernel launches."""
    tp_comm: float
    cp_comm: float
    ep_comm: float
    fsdp_comm: float
    """Gathers and reductions of sharded weights and gradients, per micro batch."""
    recompute: float
    bubble: float
    """The busiest rank waits for others, messages taken as instant."""
    p2p: float
    """What messages between stages add to that."""
    dp_comm: float
    optimizer: float
    offload: float
    overhead: float


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Peak bytes of one pipeline rank."""

    rank: int
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    transients_bytes: float
    overheads_bytes: float
    """Context, communicators and what the allocator reserves beyond the peak."""

    @property
    def total_bytes(self) -> float:
        """All of it."""
        return float(sum(astuple(self)[1:]))


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak memory of a step."""

    peak_allocated_bytes: float
    """Fullest rank, as the allocator counts."""
    peak_reserved_bytes: float
    """Fullest rank, device memory the process takes: reserved, context and communicators."""
    capacity_bytes: float
    fits: bool
    pipeline_ranks: tuple[RankMemory, ...]

    @property
    def headroom_bytes(self) -> float:
        """What is left on the fullest rank."""
        return self.capacity_bytes - self.peak_reserved_bytes


@dataclass(frozen=True, slots=True)
class Estimate:
    """All a layout is expected to cost."""

    step_time_s: float
    lower_bound_s: float
    """The closed-form bound the search pruned with."""
    tokens_per_s_per_gpu: float
    tflops_per_gpu: float
    mfu: float
    terms: Terms
    memory: Memory
    uncertainty: Interval


@dataclass(frozen=True, slots=True)
class Makespans:
    """Simulated seconds of the pipelined part of one step."""

    with_messages: float
    instant: float
    """As if messages between stages took no time."""
    dp_comm: float
    """What gradient and parameter traffic adds to the first."""


@dataclass(frozen=True, slots=True)
class SimulatedTable:
    """`Makespans` of many layouts."""

    with_messages: FloatColumn
    instant: FloatColumn
    dp_comm: FloatColumn

    def row(self, index: int) -> Makespans:
        """One of them."""
        return Makespans(
            float(self.with_messages[index]), float(self.instant[index]), float(self.dp_comm[index])
        )


def explicit(
    job: Job,
    machine: Machine,
    traits: RuntimeTraits,
    table: LayoutTable,
    *,
    memory_margin: float = 0.0,
) -> tuple[Estimate, ...]:
    """Price every row with its schedule simulated; for a few rows.

    `memory_margin` is the share of device memory that must stay free for `fits`.
    """
    priced = price(job, machine, traits, table, merged=False)
    simulated = simulate(job, priced)
    return tuple(
        _estimate(job, machine, priced, row, makespans=simulated.row(row), margin=memory_margin)
        for row in range(len(table))
    )


def step_seconds(
    job: Job, machine: Machine, traits: RuntimeTraits, table: LayoutTable
) -> FloatColumn:
    """Step time of every row with its schedule simulated.

    Source: as `costmodel.estimate.price`, with the simulated pipeline for its bound.
    """
    priced = price(job, machine, traits, table, merged=False)
    pipeline = simulate(job, priced)
    return with_overhead(machine, pipeline.with_messages + pipeline.dp_comm + priced.update)


def simulate(job: Job, priced: Priced) -> SimulatedTable:
    """Run each row's schedule, with its messages and with instant ones.

    `priced` keeps every rank apart. Rows with one pipeline shape run together.
    """
    table = priced.table
    first, shape = distinct(table.schedule, table.pp, table.vpp, priced.microbatches)
    with_messages, instant, dp_comm = np.zeros((3, len(table)))
    for number, one in enumerate(first.tolist()):
        rows = np.flatnonzero(shape == number)
        forward, backward = virtual_stage_seconds(job, priced, rows)
        p2p, pp = priced.seconds.p2p[rows], int(table.pp[one])
        both = rank_end_seconds(
            SCHEDULE_NAMES[table.schedule[one]],
            (pp, int(table.vpp[one])),
            int(priced.microbatches[one]),
            np.concatenate([forward, forward]),
            np.concatenate([backward, backward]),
            p2p=np.concatenate([p2p, np.zeros_like(p2p)]),
        )
        ends = both[: len(rows)]
        with_messages[rows] = ends.max(axis=1)
        instant[rows] = both[len(rows) :].max(axis=1)
        traffic = priced.traffic[:pp, rows]
        dp_comm[rows] = exposed_seconds(with_messages[rows], ends.T, traffic)
    return SimulatedTable(with_messages, instant, dp_comm)


def virtual_stage_seconds(
    job: Job, priced: Priced, rows: IntColumn
) -> tuple[FloatColumn, FloatColumn]:
    """Forward and backward seconds of every virtual stage; shape (row, stage).

    All rows have one `pp` and `vpp`. Source: derived; sums of blocks.
    """
    table, decoder = priced.table.take(rows), decoder_of(job.model)
    stages = stage_layers(decoder, int(table.pp[0] * table.vpp[0]))
    seconds = priced.seconds
    forward, backward = np.zeros((2, len(rows), len(stages.dense)))
    for block, count in zip(seconds.by_kind, stages.by_kind, strict=True):
        forward += block.forward[rows][:, None] * count
        backward += block.backward[rows][:, None] * count
    repeated = layers_again(decoder, stages, table)
    for block, again in zip((seconds.dense, seconds.moe), repeated, strict=True):
        backward += block.again[rows][:, None] * again
    return forward, backward


def _estimate(
    job: Job, machine: Machine, priced: Priced, row: int, *, makespans: Makespans, margin: float
) -> Estimate:
    explained = makespans.with_messages + makespans.dp_comm + float(priced.update[row])
    step = float(with_overhead(machine, np.array([explained]))[0])
    flop_per_second = model_flop_per_step(job) / step / machine.num_gpus
    return Estimate(
        step_time_s=step,
        lower_bound_s=float(priced.step_seconds[row]),
        tokens_per_s_per_gpu=job.training.tokens_per_step / step / machine.num_gpus,
        tflops_per_gpu=flop_per_second / TERA,
        mfu=flop_per_second / machine.peak_flop_per_second,
        terms=_terms(priced, row, makespans, step),
        memory=_memory(machine, priced, row, margin),
        uncertainty=step_time_interval(job, machine, step),
    )


def _terms(priced: Priced, row: int, makespans: Makespans, step: float) -> Terms:
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
    repeated = ranks.dense_again[rank, row] * seconds.dense.again[row]
    repeated += ranks.moe_again[rank, row] * seconds.moe.again[row]
    traffic = sum(
        count * layer.traffic[row] for count, layer in zip(counts, seconds.by_kind, strict=True)
    )
    explained = makespans.with_messages + makespans.dp_comm + float(priced.update[row])
    return Terms(
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
        offload=float(priced.offload[row]),
        overhead=step - explained,
    )


def _memory(machine: Machine, priced: Priced, row: int, margin: float) -> Memory:
    table = priced.memory
    allocated, reserved = table.allocated[:, row], table.reserved[:, row]
    outside = CONTEXT_BYTES + COMMUNICATOR_BYTES
    ranks = tuple(
        RankMemory(
            rank=r,
            weights_bytes=float(table.weights[r, row]),
            gradients_bytes=float(table.gradients[r, row]),
            optimizer_bytes=float(table.optimizer[r, row]),
            activations_bytes=float(table.activations[r, row]),
            transients_bytes=float(table.transients[r, row]),
            overheads_bytes=float(reserved[r] - allocated[r] + outside),
        )
        for r in range(int(priced.table.pp[row]))
    )
    used = float(table.used[row])
    return Memory(
        peak_allocated_bytes=float(allocated.max()),
        peak_reserved_bytes=used,
        capacity_bytes=machine.memory_bytes,
        fits=used <= machine.memory_bytes * (1 - margin),
        pipeline_ranks=ranks,
    )

"""Run a pipeline program on a clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from costmodel.schedules import program
from costmodel.schedules.program import Program
from costmodel.table import BoolColumn, FloatColumn, IntColumn

FloatMatrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Wave:
    """Ops that can run at the same time, at most one on each rank: flat indices into op ends.

    The end of an op is stored at `is_backward * stages * microbatches + stage * microbatches +
    microbatch`; index -1 stands for "no input".
    """

    rank: IntColumn
    op: IntColumn
    source: IntColumn
    """The op whose output it needs, or -1."""
    hops: BoolColumn
    """Does that output come from another rank?"""
    kind: IntColumn
    """Stage of a forward pass, number of stages + stage of a backward pass: its place in a list of
    durations."""


@lru_cache(maxsize=256)
def waves(schedule: str, pp: int, vpp: int, num_microbatches: int) -> tuple[Wave, ...]:
    """Ops of a program in topological order, grouped so that each group is one numpy step.

    Raises:
        AssertionError: The program deadlocks: a bug of its schedule.
    """
    return waves_of(program(schedule, pp, vpp, num_microbatches))


def waves_of(ops: Program) -> tuple[Wave, ...]:
    """Group the ops of any program into waves."""
    size = ops.num_stages * ops.num_microbatches
    op = ops.is_backward * size + ops.stage * ops.num_microbatches + ops.microbatch
    source = _sources(ops, size)
    source_stage = source // ops.num_microbatches % ops.num_stages
    hops = (source >= 0) & (source_stage % ops.pp != np.arange(ops.pp)[:, None])
    done = np.zeros(2 * size + 1, dtype=bool)
    done[-1] = True  # index -1: no input needed
    result: list[Wave] = []
    ranks, cursor = np.arange(ops.pp), np.zeros(ops.pp, dtype=np.int64)
    length = op.shape[1]
    while True:
        alive = ranks[cursor < length]
        if not len(alive):
            return tuple(result)
        at = cursor[alive]
        ready = alive[done[source[alive, at]]]
        assert len(ready), "pipeline program deadlocks"
        at = cursor[ready]
        now = op[ready, at]
        result.append(
            Wave(
                ready,
                now,
                source[ready, at],
                hops[ready, at],
                ops.is_backward[ready, at] * ops.num_stages + ops.stage[ready, at],
            )
        )
        done[now] = True
        cursor[ready] += 1


def _sources(ops: Program, size: int) -> IntColumn:
    """Flat index of each op's input: the stage before (forward) or after (backward)."""
    n, last = ops.num_microbatches, ops.num_stages - 1
    before = np.where(ops.stage > 0, (ops.stage - 1) * n + ops.microbatch, -1)
    after = np.where(
        ops.stage < last,
        size + (ops.stage + 1) * n + ops.microbatch,
        ops.stage * n + ops.microbatch,
    )
    return np.where(ops.is_backward, after, before)


def op_ends(
    groups: tuple[Wave, ...], forward: FloatMatrix, backward: FloatMatrix, p2p: FloatColumn
) -> FloatMatrix:
    """When every op ends; (candidate, op), with a last column of zeros for "no input".

    `forward` and `backward` are seconds of shape (candidate, stage). An op starts when its rank is
    free and its input has arrived; a message between ranks takes `p2p` seconds and occupies
    nobody. Source: longest path through the order and data edges.
    """
    candidates = len(p2p)
    end = np.zeros((candidates, 1 + sum(len(wave.op) for wave in groups)))
    clock = np.zeros((candidates, 1 + max(int(wave.rank.max()) for wave in groups)))
    latency = p2p[:, None]
    seconds = np.concatenate([forward, backward], axis=1)
    for wave in groups:
        arrival = end[:, wave.source] + latency * wave.hops
        finish = np.maximum(clock[:, wave.rank], arrival) + seconds[:, wave.kind]
        end[:, wave.op] = finish
        clock[:, wave.rank] = finish
    return end


def makespan_seconds(
    groups: tuple[Wave, ...], forward: FloatMatrix, backward: FloatMatrix, p2p: FloatColumn
) -> FloatColumn:
    """End of the last op of each candidate. Source: as `op_ends`."""
    return np.asarray(op_ends(groups, forward, backward, p2p).max(axis=1))


SHORTEST_CYCLES = 6
"""Groups of `pp` micro batches in the first shortened run: warm-up, two equal cycles, drain.

Source: derived; the warm-up of any rank is shorter than two cycles.
"""
PERIODIC_TOLERANCE = 1e-11
"""Largest relative difference of two cycles that count as equal: rounding, nothing more."""


def rank_end_seconds(
    schedule: str,
    shape: tuple[int, int],
    microbatches: int,
    forward: FloatMatrix,
    backward: FloatMatrix,
    *,
    p2p: FloatColumn,
) -> FloatMatrix:
    """When each rank ends its last pass, under a schedule of shape (pp, vpp); (candidate, rank).

    Between warm-up and drain every rank repeats the same passes, `pp` micro batches a cycle. The
    end of an op is a maximum of sums, so once two cycles in a row end later by one constant
    everywhere, every further cycle does too: a shorter run and that constant give the whole.
    Source: max-plus linear systems are homogeneous (Baccelli et al., Synchronization and
    Linearity, 1992, section 3.7); tested against the full run.
    """
    pp, vpp = shape
    cycles = SHORTEST_CYCLES
    while cycles * pp < microbatches:
        short = cycles * pp + microbatches % pp
        ends = op_ends(waves(schedule, pp, vpp, short), forward, backward, p2p)
        period = _period(schedule, shape, short, ends)
        if period is not None:
            left = (microbatches - short) // pp * period
            return _last_ops(schedule, shape, short, ends) + left[:, None]
        cycles *= 2
    ends = op_ends(waves(schedule, pp, vpp, microbatches), forward, backward, p2p)
    return _last_ops(schedule, shape, microbatches, ends)


def _last_ops(
    schedule: str, shape: tuple[int, int], microbatches: int, ends: FloatMatrix
) -> FloatMatrix:
    """End of the last op of every rank."""
    _, ops = steady_window(schedule, *shape, microbatches)
    return np.asarray(ends[:, ops[:, -1]])


def _period(
    schedule: str, shape: tuple[int, int], microbatches: int, ends: FloatMatrix
) -> FloatColumn | None:
    """Seconds of one steady cycle of each candidate; None while any has not settled."""
    pp, vpp = shape
    warmup, ops = steady_window(schedule, pp, vpp, microbatches)
    length = 2 * pp * vpp
    count = (ops.shape[1] - 2 * int(warmup.max())) // length
    starts = warmup[:, None] + length * (count - 3) + np.arange(3 * length)[None, :]
    window = ends[:, np.take_along_axis(ops, starts, axis=1)]
    cycles = window.reshape(len(ends), pp, 3, length)
    shifts = np.diff(cycles, axis=2).reshape(len(ends), -1)
    low, high = shifts.min(axis=1), shifts.max(axis=1)
    settled = high - low <= PERIODIC_TOLERANCE * ends.max(axis=1)
    return np.asarray((low + high) / 2) if settled.all() else None


@lru_cache(maxsize=256)
def steady_window(
    schedule: str, pp: int, vpp: int, microbatches: int
) -> tuple[IntColumn, IntColumn]:
    """Forward passes before each rank's first backward, and the ops of each rank in order."""
    ops = program(schedule, pp, vpp, microbatches)
    size = ops.num_stages * ops.num_microbatches
    index = ops.is_backward * size + ops.stage * ops.num_microbatches + ops.microbatch
    return np.argmax(ops.is_backward, axis=1), index

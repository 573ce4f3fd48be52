"""Run a pipeline program on a clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from costmodel.schedules import SCHEDULES, program
from costmodel.schedules.program import EQUAL, Op, Program, RelativeSeconds
from costmodel.table import BoolColumn, FloatColumn, IntColumn

FloatMatrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Seconds of the passes of every virtual stage; matrices have shape (candidate, stage)."""

    forward: FloatMatrix
    backward: FloatMatrix
    """Both gradients."""
    weight: FloatMatrix
    """Part of `backward`: the gradient of the weights, where the schedule runs it apart."""

    @property
    def by_kind(self) -> FloatMatrix:
        """Seconds of every kind of op on every stage, end to end in the order of `Op`.

        Source: derived.
        """
        sent = self.backward - self.weight
        return np.concatenate([self.forward, sent, self.weight, self.backward], axis=1)

    def twice(self) -> StageSeconds:
        """Every candidate, and every candidate again."""
        columns = (self.forward, self.backward, self.weight)
        return StageSeconds(*(np.concatenate([one, one]) for one in columns))

    def take(self, rows: IntColumn) -> StageSeconds:
        """Some of the candidates."""
        return StageSeconds(self.forward[rows], self.backward[rows], self.weight[rows])


@dataclass(frozen=True, slots=True)
class Wave:
    """Ops that can run at the same time, at most one on each rank: flat indices into op ends.

    The end of an op is stored at `slot * stages * microbatches + stage * microbatches +
    microbatch`, where a slot holds forward passes, input gradients (alone or not), or weight
    gradients; index -1 stands for "no input".
    """

    rank: IntColumn
    op: IntColumn
    source: IntColumn
    """The op whose output it needs, or -1."""
    hops: BoolColumn
    """Does that output come from another rank?"""
    kind: IntColumn
    """Kind of op * number of stages + stage: its place in a list of durations."""


SLOT = np.array([0, 1, 2, 1])
"""Which of the ends of its pass an op of each kind writes."""


@lru_cache(maxsize=256)
def waves(
    schedule: str, pp: int, vpp: int, num_microbatches: int, relative: RelativeSeconds = EQUAL
) -> tuple[Wave, ...]:
    """Ops of a program in topological order, grouped so that each group is one numpy step.

    Raises:
        AssertionError: The program deadlocks: a bug of its schedule.
    """
    return waves_of(program(schedule, pp, vpp, num_microbatches, relative))


def waves_of(ops: Program) -> tuple[Wave, ...]:
    """Group the ops of any program into waves."""
    size = ops.num_stages * ops.num_microbatches
    op, source = op_index(ops), _sources(ops, size)
    rank_of_stage = ops.rank_of_stage
    source_stage = source // ops.num_microbatches % ops.num_stages
    hops = (source >= 0) & (rank_of_stage[source_stage] != np.arange(ops.pp)[:, None])
    kind = ops.kind * ops.num_stages + ops.stage
    done = np.zeros(3 * size + 1, dtype=bool)
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
        result.append(Wave(ready, now, source[ready, at], hops[ready, at], kind[ready, at]))
        done[now] = True
        cursor[ready] += 1


def op_index(ops: Program) -> IntColumn:
    """Where the end of every op is stored; shape (rank, position)."""
    size = ops.num_stages * ops.num_microbatches
    return np.asarray(SLOT[ops.kind] * size + ops.stage * ops.num_microbatches + ops.microbatch)


def _sources(ops: Program, size: int) -> IntColumn:
    """Flat index of each op's input: the pass of the stage before (forward) or after (backward).

    The last stage goes backward from its own forward pass, a weight gradient follows its B.
    """
    n, last = ops.num_microbatches, ops.num_stages - 1
    own = ops.stage * n + ops.microbatch
    before = np.where(ops.stage > 0, own - n, -1)
    after = np.where(ops.stage < last, size + own + n, own)
    backward = np.where(ops.kind == Op.WEIGHT, size + own, after)
    return np.where(ops.kind == Op.FORWARD, before, backward)


def op_ends(groups: tuple[Wave, ...], seconds: StageSeconds, p2p: FloatColumn) -> FloatMatrix:
    """When every op ends; (candidate, op), with a last column of zeros for "no input".

    An op starts when its rank is free and its input has arrived; a message between ranks takes
    `p2p` seconds and occupies nobody. Source: longest path through the order and data edges.
    """
    candidates = len(p2p)
    end = np.zeros((candidates, 1 + sum(len(wave.op) for wave in groups)))
    clock = np.zeros((candidates, 1 + max(int(wave.rank.max()) for wave in groups)))
    latency = p2p[:, None]
    durations = seconds.by_kind
    for wave in groups:
        arrival = end[:, wave.source] + latency * wave.hops
        finish = np.maximum(clock[:, wave.rank], arrival) + durations[:, wave.kind]
        end[:, wave.op] = finish
        clock[:, wave.rank] = finish
    return end


def makespan_seconds(
    groups: tuple[Wave, ...], seconds: StageSeconds, p2p: FloatColumn
) -> FloatColumn:
    """End of the last op of each candidate. Source: as `op_ends`."""
    return np.asarray(op_ends(groups, seconds, p2p).max(axis=1))


def first_start_seconds(seconds: StageSeconds, p2p: FloatColumn, pp: int) -> FloatMatrix:
    """When each rank starts its first pass; (candidate, rank).

    Source: derived; the first micro batch crosses the first `pp` stages, one on each rank.
    """
    ahead = np.cumsum(seconds.forward[:, :pp] + p2p[:, None], axis=1)
    return np.concatenate([np.zeros((len(p2p), 1)), ahead[:, :-1]], axis=1)


UNITS = 48
"""Whole units that a forward and a backward pass take together where durations are compared.

Source: assumed; 2 % of a pass, less than the model knows of it.
"""


def relative_seconds(seconds: StageSeconds, p2p: FloatColumn) -> list[RelativeSeconds]:
    """Durations of each candidate's mean stage and message, rounded to a common unit."""
    parts = [seconds.forward, seconds.backward - seconds.weight, seconds.weight]
    mean = np.stack([*(part.mean(axis=1) for part in parts), p2p], axis=1)
    unit = mean[:, :3].sum(axis=1, keepdims=True) / UNITS
    whole = np.rint(mean / np.where(unit > 0, unit, 1.0)).astype(np.int64)
    return [RelativeSeconds(*row) for row in whole.tolist()]


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
    seconds: StageSeconds,
    *,
    p2p: FloatColumn,
    relative: RelativeSeconds = EQUAL,
) -> FloatMatrix:
    """When each rank ends its last pass, under a schedule of shape (pp, vpp); (candidate, rank).

    Under a schedule that repeats, between warm-up and drain every rank runs the same passes, `pp`
    micro batches a cycle. The end of an op is a maximum of sums, so once two cycles in a row end
    later by one constant everywhere, every further cycle does too: a shorter run and that constant
    give the whole.
    Source: max-plus linear systems are homogeneous (Baccelli et al., Synchronization and
    Linearity, 1992, section 3.7); tested against the full run.
    """
    pp, vpp = shape
    cycles = SHORTEST_CYCLES
    while SCHEDULES[schedule].repeats and cycles * pp < microbatches:
        short = cycles * pp + microbatches % pp
        ends = op_ends(waves(schedule, pp, vpp, short), seconds, p2p)
        period = _period(schedule, shape, short, ends)
        if period is not None:
            left = (microbatches - short) // pp * period
            return _last_ops(schedule, shape, short, ends) + left[:, None]
        cycles *= 2
    ends = op_ends(waves(schedule, pp, vpp, microbatches, relative), seconds, p2p)
    return _last_ops(schedule, shape, microbatches, ends, relative)


def _last_ops(
    schedule: str,
    shape: tuple[int, int],
    microbatches: int,
    ends: FloatMatrix,
    relative: RelativeSeconds = EQUAL,
) -> FloatMatrix:
    """End of the last op of every rank."""
    _, ops = steady_window(schedule, *shape, microbatches, relative)
    return np.asarray(ends[:, ops[:, -1]])


def _period(
    schedule: str, shape: tuple[int, int], microbatches: int, ends: FloatMatrix
) -> FloatColumn | None:
    """Seconds of one steady cycle of each candidate; None while any has not settled."""
    pp, vpp = shape
    warmup, ops = steady_window(schedule, pp, vpp, microbatches)
    length = ops.shape[1] // microbatches * pp
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
    schedule: str, pp: int, vpp: int, microbatches: int, relative: RelativeSeconds = EQUAL
) -> tuple[IntColumn, IntColumn]:
    """Forward passes before each rank's first backward, and the ops of each rank in order."""
    ops = program(schedule, pp, vpp, microbatches, relative)
    return np.argmax(ops.kind != Op.FORWARD, axis=1), op_index(ops)

"""Run a pipeline program on a clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainplan.costmodel.columns import FloatColumn, FloatMatrix, IntColumn, RowRanks
from trainplan.costmodel.program import Op, Program, Waves, waves_of

RowStages = FloatColumn  # (row, stage)

AT_ONCE = 1 << 15
"""Ends of ops up to which messages and durations are laid out for all of them at once.

Source: measured; above, they leave the cache before they are read."""


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Seconds of the passes of every virtual stage.

    Where a sequence is cut in chunks, a stage has one column for each chunk, one after the other.
    """

    forward: RowStages
    backward: RowStages
    """Both gradients."""
    weight: RowStages
    """Part of `backward`: the gradient of the weights, where the schedule runs it apart."""
    other: tuple[FloatMatrix, ...] = ()
    """Seconds of the ops after `Op.WHOLE`, in the order of `Op`, where a program has them."""

    @property
    def by_kind(self) -> FloatMatrix:
        """Seconds of every kind of op on every stage, end to end in the order of `Op`.

        Source: `backward` is the input gradient followed by the weight gradient, so the input
        gradient alone takes what is left without `weight`.
        """
        sent = self.backward - self.weight
        return np.concatenate([self.forward, sent, self.weight, self.backward, *self.other], axis=1)

    def twice(self) -> StageSeconds:
        """Every candidate, and every candidate again."""
        rows = np.arange(len(self.forward))
        return self.take(np.concatenate([rows, rows]))

    def take(self, rows: IntColumn) -> StageSeconds:
        """Some of the candidates."""
        return StageSeconds(self.forward[rows], self.backward[rows], self.weight[rows])


def op_ends(waves: Waves, seconds: StageSeconds, p2p: FloatColumn) -> FloatMatrix:
    """When every op ends, by flat index; (candidate, op), a last column of zeros for "no input".

    Source: as `place_ends`.
    """
    return np.asarray(place_ends(waves, seconds, p2p).take(waves.place, axis=0).T)


def place_ends(waves: Waves, seconds: StageSeconds, p2p: FloatColumn) -> FloatMatrix:
    """When every op ends, by place; (place, candidate), a last row of zeros for "no input".

    An op starts when its row is free and its inputs have arrived; a message between ranks takes
    `p2p` seconds and occupies nobody. Where messages differ, `p2p` has a column for those between
    each stage and the next.

    Source: an op starts when the op before it on its rank and its inputs have ended, a message
    later: the longest path through these edges.
    """
    end = np.empty((len(waves.op) + 1, len(p2p)))
    end[-1] = 0.0
    durations = np.ascontiguousarray(seconds.by_kind.T)
    latency = p2p
    if p2p.ndim > 1:
        latency = p2p.T[boundary_of(np.arange(len(durations)), seconds.forward.shape[1])]

    def messages(crosses: FloatMatrix, duration: IntColumn) -> FloatMatrix:
        message = latency if p2p.ndim == 1 else latency.take(duration, axis=0)
        return np.asarray(crosses * message)

    waits, rows, at_once = bool(p2p.any()), end.take, end.size <= AT_ONCE
    if at_once:
        took = durations.take(waves.duration, axis=0)
        sent = messages(waves.hops[1:, :, None].astype(np.float64), waves.duration)
    for first, last, before, inputs, crosses, duration in waves.steps:
        begin = rows(before, 0, None, "clip")  # places are in range: "clip" leaves out the test
        for i, places in enumerate(inputs):
            arrived = rows(places, 0, None, "clip")
            if waits:
                arrived += sent[i, first:last] if at_once else messages(crosses[i], duration)
            np.maximum(begin, arrived, out=begin)
        begin += took[first:last] if at_once else durations.take(duration, 0, None, "clip")
        end[first:last] = begin
    return end


def boundary_of(duration: IntColumn, stages: int) -> IntColumn:
    """Number of the stage before the boundary that the input of an op crosses, if it does.

    `duration` is as in `Wave`.

    Source: a forward pass on stage s has its input from stage s - 1, across boundary s - 1, a
    backward pass from stage s + 1, across boundary s.
    """
    kind, stage = np.divmod(duration, stages)
    return np.asarray(np.clip(stage - (kind == Op.FORWARD), 0, max(0, stages - 2)))


def first_start_seconds(seconds: StageSeconds, p2p: FloatColumn, pp: int) -> RowRanks:
    """When each rank starts its first pass.

    Source: derived; the first micro batch crosses the first `pp` stages, one on each rank.
    """
    sent = p2p[:, None] if p2p.ndim == 1 else p2p[:, : pp - 1]
    ahead = np.cumsum(seconds.forward[:, : pp - 1] + sent, axis=1)
    return np.concatenate([np.zeros((len(p2p), 1)), ahead], axis=1)


@dataclass(frozen=True)
class Timeline:
    """One program on a clock; matrices have shape (row, position), as in the program."""

    program: Program
    start: FloatMatrix
    end: FloatMatrix

    @property
    def seconds(self) -> FloatMatrix:
        """Seconds of every op; 0 where a row has none.

        Source: an op runs from its start to its end without a break, so it takes the difference of
        the two.
        """
        return self.end - self.start

    @cached_property
    def makespan(self) -> float:
        """From the start of the first op to the end of the last.

        Source: the clock is at 0 when the first op starts, so the latest end of any op is the whole
        length.
        """
        return float(self.end.max())

    @property
    def span(self) -> FloatColumn:
        """From each rank's first op to the end of its last; shape (rank,).

        Where ranks do not wait for one another at the end of a step, steps follow one another as
        far apart as the longest of them. Source: Qi et al., arXiv:2401.10241, section 2.3.
        """
        rows = slice(self.program.pp)
        return np.asarray(self.end[rows].max(axis=1) - self.start[rows, 0])

    @property
    def max_stage_span(self) -> float:
        """The longest span of any rank. Source: as `span`."""
        return float(self.span.max())

    @property
    def bubble_fraction(self) -> float:
        """Share of the makespan that the mean rank idles.

        Source: `pp` ranks have `pp` makespans of time and work for the seconds of their ops; the
        rest, as a share, is idle.
        """
        busy = self.seconds[: self.program.pp].sum()
        whole = self.makespan * self.program.pp
        return float(1 - busy / whole) if whole > 0 else 0.0

    @property
    def peak_activations(self) -> FloatColumn:
        """Most activations each rank holds. Source: as `peaks`, freed by the weight gradient."""
        return self.peaks(Op.WEIGHT)

    def peaks(self, freeing: Op) -> FloatColumn:
        """Most activations each rank holds, of one micro batch through one virtual stage each.

        Held from the start of the forward pass to the end of the `freeing` op, or of the whole
        backward pass; copied ones leave when their copy ends and are back when the copy back
        starts.

        Source: each start adds one and each end takes one, ends first at the same moment; the
        largest running sum is the peak, and a chunk of a sequence is a part of an activation.
        """
        ops = self.program
        gives = ops.starts_pass | (ops.kind == Op.RELOAD)
        takes = (ops.kind == freeing) | (ops.kind == Op.WHOLE) | (ops.kind == Op.OFFLOAD)
        rank = np.broadcast_to(np.arange(len(ops.kind))[:, None] % ops.pp, ops.kind.shape)
        when = np.concatenate([self.start[gives], self.end[takes]])
        change = np.repeat([1, -1], [gives.sum(), takes.sum()])
        where = np.concatenate([rank[gives], rank[takes]])
        order = np.lexsort((change, when, where))
        held = np.cumsum(change[order])  # back at 0 where a rank ends and the next begins
        starts = np.searchsorted(where[order], np.arange(ops.pp))
        return np.asarray(np.maximum.reduceat(held, starts) / ops.sequence_chunks)


def run(program: Program, seconds: StageSeconds, p2p: float = 0.0) -> Timeline:
    """Run one program; `seconds` has one candidate.

    Raises:
        SpecError: The program deadlocks, or an op needs an output that no rank makes.
    """
    waves = waves_of(program)
    shape = program.kind.shape
    ends = op_ends(waves, seconds, np.array([p2p]))[0, :-1]
    seconds_of_op = np.zeros(program.kind.size)
    seconds_of_op[waves.op] = seconds.by_kind[0][waves.duration]
    end = ends.reshape(shape)
    return Timeline(program, end - seconds_of_op.reshape(shape), end)

"""Longest paths of a pipeline step: what an op waited for, back to the start.

The length of a path is linear in the seconds of the stages, and a path is there whatever they
are. So every path is a lower bound of the step for every split of the layers, and the longest one
is the step itself: T(x) = max over paths P of P . x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    FloatMatrix,
    IntColumn,
    IntMatrix,
    RowRanks,
)
from trainplan.costmodel.program import EQUAL, NOTHING, Op, Waves
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.timeline.clock import StageSeconds, boundary_of, op_ends
from trainplan.costmodel.timeline.cycles import named_program, waves

IntPathStages = IntColumn  # (path, stage)
IntPathBoundaries = IntColumn  # (path, boundary)
RowPaths = FloatColumn  # (row, path)


@dataclass(frozen=True, slots=True)
class Paths:
    """Ops on some paths by virtual stage."""

    forward: IntPathStages
    backward: IntPathStages
    """Whole backward passes, or input gradients with `weight` taken off."""
    weight: IntPathStages
    """Weight gradients less input gradients: their seconds are part of those of `backward`."""
    crossed: IntPathBoundaries
    """Messages between each stage and the next."""
    rank: IntColumn
    """Rank whose last op ends the path."""

    @property
    def hops(self) -> IntColumn:
        """Messages between ranks."""
        return np.asarray(self.crossed.sum(axis=1))

    def joined(self, other: Paths) -> Paths:
        """Both together, each path once."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Paths(*(np.concatenate(pair) for pair in pairs)).distinct()

    def since(self, first: int) -> Paths:
        """The paths from a number on."""
        return self.take(np.arange(first, len(self.rank)))

    def take(self, rows: IntColumn) -> Paths:
        """Some of the paths."""
        return Paths(*(getattr(self, f.name)[rows] for f in fields(self)))

    def distinct(self) -> Paths:
        """Each path once."""
        if not len(self.rank):
            return self
        columns = [getattr(self, f.name) for f in fields(self)]
        flat = np.concatenate([column.reshape(len(self.rank), -1) for column in columns], axis=1)
        first: dict[bytes, int] = {}
        for number, path in enumerate(flat):
            first.setdefault(path.tobytes(), number)
        return self.take(np.array(list(first.values()), dtype=np.int64))

    def seconds(self, stages: StageSeconds, p2p: FloatColumn) -> RowPaths:
        """Length of every path for every candidate.

        Source: a path takes the seconds of its ops and messages, so it is linear in how often it
        crosses each stage and each boundary.
        """
        passes = stages.forward @ self.forward.T + stages.backward @ self.backward.T
        sent = np.outer(p2p, self.hops) if p2p.ndim == 1 else p2p @ self.crossed.T
        return np.asarray(passes + stages.weight @ self.weight.T + sent)


@dataclass(frozen=True, slots=True)
class _Graph:
    """What the ops of a program wait for, by flat index."""

    waves: Waves
    inputs: IntMatrix
    """Ops whose outputs each op needs, or -1; shape (input, op)."""
    crosses: BoolColumn
    """Do they come from another rank? Shape (input, op)."""
    place: IntColumn
    """Place of each op's duration."""
    boundary: IntColumn
    """Boundary between stages that such an output crosses."""
    rank: IntColumn
    """Rank of each op."""
    first: BoolColumn
    """Is it the first op of its rank?"""
    last: IntColumn
    """Last op of every rank."""
    length: IntColumn
    """Ops of every rank."""


@lru_cache(maxsize=64)
def _graph(schedule: str, pp: int, vpp: int, num_microbatches: int) -> _Graph:
    ops = named_program(schedule, pp, vpp, num_microbatches, EQUAL)
    order, positions = waves(schedule, pp, vpp, num_microbatches), ops.kind.shape[1]
    here, number = order.place[:-1], np.arange(ops.kind.size)
    duration = order.duration[here]
    return _Graph(
        order,
        inputs=np.append(order.op, NOTHING)[order.inputs[1:, here]],
        crosses=order.hops[1:, here],
        place=duration,
        boundary=boundary_of(duration, pp * vpp),
        rank=number // positions,
        first=number % positions == 0,
        last=np.arange(pp) * positions + ops.lengths[:pp] - 1,
        length=ops.lengths[:pp],
    )


def critical_paths(
    schedule: str,
    shape: tuple[int, int, int],
    seconds: StageSeconds,
    p2p: FloatColumn,
    tails: RowRanks,
) -> Paths:
    """The longest path of every candidate under a schedule of shape (pp, vpp, micro batches).

    It ends on the rank where the end of the last op and what follows it, `tails` (candidate,
    rank), are most. For schedules that do not adapt to durations. `p2p` is as in `op_ends`.
    Of a step of more than `MOST_TRACED` ops only those that a short run shows, maybe none.
    Source: critical path method; of equal inputs the op before on the same rank counts.
    """
    pp, vpp, microbatches = shape
    if 2 * pp * vpp * microbatches <= MOST_TRACED:
        return _traced(schedule, shape, seconds, p2p, tails)[0]
    enough = _enough_microbatches(schedule, shape)
    short = min(enough, LONG * pp)
    paths = run_of(schedule, (pp, vpp, short), seconds, p2p).longer(microbatches - short)
    return paths if short == enough else paths.take(np.arange(0))


MOST_TRACED = 1 << 20
"""Ops of a step that are traced. Source: assumed; some GB of memory for eight candidates."""
LONG = 3
"""Groups of `pp` micro batches of a run that stands for longer ones.

Source: derived; in its middle no rank has ops of the warm-up or of the drain. Measured: its paths
close the same layouts as those of six groups.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """The longest paths of a run, and of longer ones."""

    paths: Paths
    stays: BoolColumn
    """Stages on which a path goes on for as long as the run does; (path, stage)."""

    def longer(self, by: int) -> Paths:
        """Those of a run of so many more micro batches, as far as they are known; maybe none.

        A path that stays on one rank for more than half of the rank's ops is there in the middle of
        the run, between warm-up and drain. A longer run repeats what the rank does there, and what
        comes later, on whatever rank, is the same for later micro batches: so the path goes on for
        longer.

        Source: the paragraph above is the proof; tests/properties/test_long_paths.py compares with
        longer runs.
        """
        if not by:
            return self.paths.distinct()
        known, more = np.flatnonzero(self.stays.any(axis=1)), by * self.stays
        forward, backward = self.paths.forward + more, self.paths.backward + more
        return replace(self.paths, forward=forward, backward=backward).take(known).distinct()


def run_of(
    schedule: str, shape: tuple[int, int, int], seconds: StageSeconds, p2p: FloatColumn
) -> Run:
    """The longest paths of every candidate, as `critical_paths` with nothing behind them."""
    tails = np.zeros((len(p2p), shape[0]))
    paths, rank = _traced(schedule, shape, seconds, p2p, tails)
    return Run(paths, np.arange(shape[0] * shape[1]) % shape[0] == rank[:, None])


def prolonged(schedule: str, shape: tuple[int, int, int], run: Callable[[int], Run]) -> Paths:
    """Paths of a shape (pp, vpp, micro batches) that a short run shows, if it shows any.

    `run` has so many micro batches.
    """
    enough = _enough_microbatches(schedule, shape)
    paths = run(enough).longer(shape[2] - enough)
    return paths if len(paths.rank) else run(shape[2]).longer(0)


def _enough_microbatches(schedule: str, shape: tuple[int, int, int]) -> int:
    """Micro batches of a run that stands for one of a shape."""
    pp, vpp, microbatches = shape
    larger_groups = vpp > 1 and microbatches % pp > 0
    if larger_groups or not SCHEDULES[schedule].alternates:
        return microbatches
    return min(microbatches, LONG * pp)


def long_paths(
    schedule: str, shape: tuple[int, int, int], seconds: StageSeconds, p2p: FloatColumn
) -> Paths:
    """The longest paths of a pipeline; of a long one, long ones that a short run shows."""
    pp, vpp, _ = shape
    return prolonged(schedule, shape, lambda m: run_of(schedule, (pp, vpp, m), seconds, p2p))


def _traced(
    schedule: str,
    shape: tuple[int, int, int],
    seconds: StageSeconds,
    p2p: FloatColumn,
    tails: FloatMatrix,
) -> tuple[Paths, IntColumn]:
    """Longest paths, and the rank on which each has more than half of the ops in a row, or -1."""
    graph, stages = _graph(schedule, *shape), shape[0] * shape[1]
    ends = np.ascontiguousarray(op_ends(graph.waves, seconds, p2p).T)
    rank = np.argmax(ends[graph.last] + tails.T, axis=0)
    arrivals = _arrivals(graph, ends, p2p)
    begin = _begins(graph, ends, arrivals)
    row, op, parts = np.arange(len(p2p)), graph.last[rank], []
    while len(row):
        start = begin[op, row]  # ops from here on ran one after the other
        came = arrivals[:, start, row]
        chosen, goes = np.argmax(came, axis=0), came.max(axis=0) > 0
        parts.append((row, start, op, graph.crosses[chosen, start] & goes))
        row, op = row[goes], graph.inputs[chosen, start][goes]
    path, first, last, sent = (np.concatenate(part) for part in zip(*parts, strict=True))
    stays, here = np.full(len(p2p), -1), graph.rank[last]
    most = 2 * (last - first + 1) > graph.length[here]
    stays[path[most]] = here[most]
    crossed = np.zeros((len(p2p), max(1, stages - 1)), dtype=np.int64)
    np.add.at(crossed, (path[sent], graph.boundary[first[sent]]), 1)
    return _counted(graph, (path, first, last), crossed, rank, stages=stages), stays


def _arrivals(graph: _Graph, ends: FloatMatrix, p2p: FloatColumn) -> FloatMatrix:
    """When the inputs of every op arrive; (input, op, candidate), 0 for "no input".

    Source: an input arrives when the op that makes it ends, or a message later from another rank.
    """
    arrivals = ends.take(graph.inputs, axis=0)
    if p2p.any():
        message = p2p if p2p.ndim == 1 else p2p.T[graph.boundary]
        arrivals += graph.crosses[:, :, None] * message
    return arrivals


def _begins(graph: _Graph, ends: FloatMatrix, arrivals: FloatMatrix) -> IntMatrix:
    """The last op up to each that waited for an input, or is the first of its rank.

    Shape (op, candidate). Of equal inputs the op before on the same rank counts.
    """
    waits = np.tile(graph.first[:, None], ends.shape[1])
    for arrival in arrivals:
        waits[1:] |= arrival[1:] > ends[:-2]
    begin = waits * np.arange(len(waits), dtype=np.int32)[:, None]
    return np.asarray(np.maximum.accumulate(begin, axis=0, out=begin))


def _counted(
    graph: _Graph,
    parts: tuple[IntColumn, IntColumn, IntColumn],
    crossed: IntMatrix,
    rank: IntColumn,
    *,
    stages: int,
) -> Paths:
    """Ops of every path by kind and stage; a part is a path, and its first and last op there."""
    path, first, last = parts
    length = last - first + 1
    op = np.arange(length.sum()) + np.repeat(last + 1 - np.cumsum(length), length)
    flat = np.repeat(path * len(Op) * stages, length) + graph.place[op]
    kinds = np.bincount(flat, minlength=len(rank) * len(Op) * stages)
    kinds = kinds.reshape(len(rank), len(Op), stages)
    whole, sent = kinds[:, Op.WHOLE], kinds[:, Op.BACKWARD]
    return Paths(kinds[:, Op.FORWARD], whole + sent, kinds[:, Op.WEIGHT] - sent, crossed, rank)

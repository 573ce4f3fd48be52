"""Longest paths of a pipeline step: what an op waited for, back to the start.

The length of a path is linear in the seconds of the stages, and a path is there whatever they
are. So every path is a lower bound of the step for every split of the layers, and the longest one
is the step itself: T(x) = max over paths P of P . x.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from costmodel.schedules.dependencies import NOTHING, durations, sources
from costmodel.schedules.program import EQUAL, IntMatrix, Op
from costmodel.steady import named_program, waves
from costmodel.table import BoolColumn, FloatColumn, IntColumn
from costmodel.timeline import FloatMatrix, StageSeconds, boundary_of, op_ends


@dataclass(frozen=True, slots=True)
class Paths:
    """Ops on some paths by virtual stage; matrices have shape (path, stage)."""

    forward: IntMatrix
    backward: IntMatrix
    """Whole backward passes, or input gradients with `weight` taken off."""
    weight: IntMatrix
    """Weight gradients less input gradients: their seconds are part of those of `backward`."""
    crossed: IntMatrix
    """Messages between each stage and the next; (path, boundary)."""
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
        columns = [getattr(self, f.name) for f in fields(self)]
        flat = np.concatenate([column.reshape(len(self.rank), -1) for column in columns], axis=1)
        first = np.sort(np.unique(flat, axis=0, return_index=True)[1])
        return self.take(first)

    def seconds(self, stages: StageSeconds, p2p: FloatColumn) -> FloatMatrix:
        """Length of every path for every candidate; shape (candidate, path). Source: derived."""
        passes = stages.forward @ self.forward.T + stages.backward @ self.backward.T
        sent = np.outer(p2p, self.hops) if p2p.ndim == 1 else p2p @ self.crossed.T
        return np.asarray(passes + stages.weight @ self.weight.T + sent)


@dataclass(frozen=True, slots=True)
class _Graph:
    """What the ops of a program wait for, by flat index."""

    inputs: IntMatrix
    """Ops whose outputs each op needs, or -1; shape (input, op)."""
    crosses: BoolColumn
    """Do they come from another rank? Shape (input, op)."""
    place: IntColumn
    """Place of each op's duration."""
    boundary: IntColumn
    """Boundary between stages that such an output crosses."""
    first: BoolColumn
    """Is it the first op of its rank?"""
    last: IntColumn
    """Last op of every rank."""
    length: IntColumn
    """Ops of every rank."""


@lru_cache(maxsize=64)
def _graph(schedule: str, pp: int, vpp: int, num_microbatches: int) -> _Graph:
    ops = named_program(schedule, pp, vpp, num_microbatches, EQUAL)
    positions = ops.kind.shape[1]
    inputs, number = sources(ops).reshape(-1, ops.kind.size), np.arange(ops.kind.size)
    place = durations(ops).ravel()
    return _Graph(
        inputs,
        crosses=(inputs != NOTHING) & (inputs // positions != number // positions),
        place=place,
        boundary=boundary_of(place, pp * vpp),
        first=number % positions == 0,
        last=np.arange(pp) * positions + ops.lengths[:pp] - 1,
        length=ops.lengths[:pp],
    )


def critical_paths(
    schedule: str,
    shape: tuple[int, int, int],
    seconds: StageSeconds,
    p2p: FloatColumn,
    behind: FloatMatrix,
) -> Paths:
    """The longest path of every candidate under a schedule of shape (pp, vpp, micro batches).

    It ends on the rank where the end of the last op and what follows it, `behind` (candidate,
    rank), are most. For schedules that do not adapt to durations. `p2p` is as in `op_ends`.
    Source: critical path method; of equal inputs the op before on the same rank counts.
    """
    return _traced(schedule, shape, seconds, p2p, behind)[0]


LONG = 6
"""Groups of `pp` micro batches of a run that stands for longer ones.

Source: derived; in its middle no rank has ops of the warm-up or of the drain.
"""
ALTERNATING = ("1f1b", "interleaved")
"""Schedules whose ranks alternate between forward and backward passes, the same for every group of
`pp` micro batches."""


def long_paths(
    schedule: str, shape: tuple[int, int, int], seconds: StageSeconds, p2p: FloatColumn
) -> Paths:
    """The longest paths of a pipeline; of a long one, long ones that a short run shows.

    A path that stays on one rank for more than half of the rank's ops is there in the middle of the
    run, between warm-up and drain. A longer run repeats what the rank does there, and what comes
    later, on whatever rank, is the same for later micro batches: so the path goes on for longer.
    Source: derived; tested against the longer run.
    """
    pp, vpp, microbatches = shape
    behind, short = np.zeros((len(p2p), pp)), LONG * pp + microbatches % pp
    short = short if schedule in ALTERNATING else microbatches
    if microbatches <= short:
        return critical_paths(schedule, shape, seconds, p2p, behind).distinct()
    paths, stays = _traced(schedule, (pp, vpp, short), seconds, p2p, behind)
    if (stays < 0).all():
        return critical_paths(schedule, shape, seconds, p2p, behind).distinct()
    stage = np.arange(pp * vpp) % pp
    more = (stage == stays[:, None]) * (microbatches - short)
    longer = replace(paths, forward=paths.forward + more, backward=paths.backward + more)
    return longer.take(np.flatnonzero(stays >= 0)).distinct()


def _traced(
    schedule: str,
    shape: tuple[int, int, int],
    seconds: StageSeconds,
    p2p: FloatColumn,
    behind: FloatMatrix,
) -> tuple[Paths, IntColumn]:
    """Longest paths, and the rank on which each has more than half of the ops in a row, or -1."""
    pp, vpp, microbatches = shape
    graph, stages = _graph(schedule, *shape), pp * vpp
    ends = op_ends(waves(schedule, pp, vpp, microbatches), seconds, p2p)
    rank = np.argmax(ends[:, graph.last] + behind, axis=1)
    source, arrival = _latest_inputs(graph, ends, p2p)
    alone, size = np.zeros_like(arrival), min(ends.shape[1], arrival.shape[1]) - 1
    alone[:, 1 : size + 1] = ends[:, :size]
    waits = graph.first | (arrival > alone)
    begin = np.maximum.accumulate(np.where(waits, np.arange(waits.shape[1]), 0), axis=1)
    change = np.zeros((len(ends), waits.shape[1] + 1), dtype=np.int64)
    crossed = np.zeros((len(ends), max(1, stages - 1)), dtype=np.int64)
    row, op = np.arange(len(ends)), graph.last[rank]
    stays = np.full(len(ends), -1)
    while len(row):
        start = begin[row, op]  # ops from here on ran one after the other
        change[row, start] += 1
        change[row, op + 1] -= 1
        here = np.searchsorted(graph.last, op)
        stays[row] = np.where(2 * (op - start + 1) > graph.length[here], here, stays[row])
        chosen = source[row, start]
        goes = arrival[row, start] > 0
        crossed[row, graph.boundary[start]] += graph.crosses[chosen, start] & goes
        row, op = row[goes], graph.inputs[chosen, start][goes]
    member = np.cumsum(change, axis=1)[:, :-1] > 0
    return _counted(graph, member, crossed, rank, stages=stages), stays


def _latest_inputs(
    graph: _Graph, ends: FloatMatrix, p2p: FloatColumn
) -> tuple[IntMatrix, FloatMatrix]:
    """The input that arrives last at every op, and when; (candidate, op). Source: derived."""
    message = p2p[:, None] if p2p.ndim == 1 else p2p[:, graph.boundary]
    arrivals = np.stack(
        [
            np.where(came != NOTHING, ends[:, came] + crosses * message, 0.0)
            for came, crosses in zip(graph.inputs, graph.crosses, strict=True)
        ]
    )
    return np.argmax(arrivals, axis=0), arrivals.max(axis=0)


def _counted(
    graph: _Graph, member: BoolColumn, crossed: IntMatrix, rank: IntColumn, *, stages: int
) -> Paths:
    """Ops of every path by kind and stage; `member` tells which ops are on it."""
    row, op = np.nonzero(member)
    size = len(Op) * stages
    flat = np.bincount(row * size + graph.place[op], minlength=len(member) * size)
    kinds = flat.reshape(len(member), len(Op), stages)
    whole, sent = kinds[:, Op.WHOLE], kinds[:, Op.BACKWARD]
    return Paths(kinds[:, Op.FORWARD], whole + sent, kinds[:, Op.WEIGHT] - sent, crossed, rank)

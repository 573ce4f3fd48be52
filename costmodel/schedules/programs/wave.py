"""Hanayo: micro batches walk the ranks in waves, there and back again, without a second model.

A rank holds an even number of virtual stages on a zig-zag, so a micro batch turns around on one
rank at every end of a wave. Up to p micro batches, a rank runs the oldest backward pass that is
ready, else the oldest forward pass. In longer steps waves of p follow one another without a pause:
a rank runs forward passes while it holds less than a wave, else backward passes first, of the
deepest stage or the oldest micro batch, whichever rule ends first; so the bubble stays about that
of one wave, for up to 1.7 times the activations.
Source: Liu et al., Hanayo: Harnessing Wave-like Pipeline Parallelism, SC 2023, arXiv:2308.15762,
section 3; the rule of choice is derived from its figures, for longer steps measured on 2 to 16
ranks with 1 to 4 waves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.program import (
    Op,
    Pass,
    Program,
    RelativeSeconds,
    Shape,
    placed,
    program_of,
)
from trainplan.costmodel.schedules.schedule import Schedule, ShapeRule, whole_backward_bound

SECONDS = {Op.FORWARD: 1, Op.WHOLE: 2}
"""Durations the order is made for. Source: Liu et al., section 3: backward takes twice forward."""


SLACK = (2, 3)
"""As `slack` of `most_held`; what holds less is taken where both are as fast. Source: measured."""


class Rule(NamedTuple):
    """How a rank chooses among the passes that are ready."""

    most: Sequence[int]
    """Micro batches that each virtual stage may hold."""
    oldest: bool
    """The oldest micro batch goes first; otherwise the deepest stage."""
    full: int
    """Activations of a rank, of one micro batch through one virtual stage each, from which on a
    backward pass goes first."""


def most_held(pp: int, vpp: int, num_microbatches: int, slack: int = SLACK[-1]) -> IntColumn:
    """Micro batches that each virtual stage may hold, by stage.

    Source: from the forward pass of stage s to the end of its backward pass 3 (pp vpp - s) seconds
    pass, and a rank needs 3 vpp of them for a micro batch, so it is busy with (pp vpp - s) / vpp
    of each stage; `slack` times as many and two make up for the time they wait (measured).
    """
    if num_microbatches <= pp:
        return np.full(pp * vpp, num_microbatches)
    deeper = np.arange(pp * vpp, 0, -1)
    return np.asarray(np.minimum(num_microbatches, -(-slack * deeper // vpp) + 2))


def _rules(shape: Shape) -> Iterator[Rule]:
    """Those that are tried. Source: measured; each is the best for some shape."""
    pp, vpp, m, *_ = shape
    if m <= pp:
        yield Rule([m] * (pp * vpp), oldest=True, full=0)
        return
    for slack in SLACK:
        most: list[int] = most_held(pp, vpp, m, slack).tolist()
        for oldest in (False, True):
            yield Rule(most, oldest, pp * vpp)
            yield Rule(most, oldest, pp * vpp + pp - 1)


class Wave:
    """One run; times are whole numbers. Each stage takes the micro batches in turn."""

    def __init__(self, shape: Shape, rule: Rule) -> None:
        self.rule, self.stages = rule, shape.pp * shape.vpp
        deepest_first = np.sort(placed("v", shape.pp, shape.vpp), axis=1)[:, ::-1]
        self.stages_of: list[list[int]] = deepest_first.tolist()
        self.rows: list[list[Pass]] = [[] for _ in range(shape.pp)]
        self.held = [0] * shape.pp
        """Activations of each rank."""
        self.peak = 0
        """Most activations of any rank so far."""
        self.arrived = {kind: [0] * self.stages for kind in SECONDS}
        """Micro batches whose input is there, for each stage."""
        self.started = {kind: [0] * self.stages for kind in SECONDS}
        self.ended = [0] * self.stages
        """Micro batches that have gone back, for each stage."""
        self.running: list[tuple[int, int]] = []
        """Time at which each busy rank is free again, and the rank."""
        self.now = 0
        self.arrived[Op.FORWARD][0] = shape.num_microbatches

    def run(self) -> Wave:
        """Run all micro batches."""
        idle = set(range(len(self.rows)))
        while True:
            idle -= {rank for rank in idle if self._start(rank)}
            if not self.running:
                return self
            self.now = self.running[0][0]
            while self.running and self.running[0][0] == self.now:
                rank = heappop(self.running)[1]
                self._finish(rank, self.rows[rank][-1])
                idle.add(rank)

    def _start(self, rank: int) -> bool:
        """Start the next pass of an idle rank, if one is ready."""
        first, then = Op.FORWARD, Op.WHOLE
        if self.held[rank] >= self.rule.full:
            first, then = then, first
        kind, ready = first, self._ready(rank, first)
        if not ready:
            kind, ready = then, self._ready(rank, then)
        if not ready:
            return False
        started = self.started[kind]
        stage = min(ready, key=started.__getitem__) if self.rule.oldest else ready[0]
        self.rows[rank].append(Pass(kind, stage, started[stage]))
        started[stage] += 1
        self.held[rank] += kind == Op.FORWARD
        self.peak = max(self.peak, self.held[rank])
        heappush(self.running, (self.now + SECONDS[kind], rank))
        return True

    def _ready(self, rank: int, kind: Op) -> list[int]:
        """Stages of a rank that may run such a pass, the deepest first."""
        arrived, started = self.arrived[kind], self.started[kind]
        ready = [stage for stage in self.stages_of[rank] if started[stage] < arrived[stage]]
        if kind == Op.WHOLE:
            return ready
        most, ended = self.rule.most, self.ended
        return [stage for stage in ready if started[stage] - ended[stage] < most[stage]]

    def _finish(self, rank: int, done: Pass) -> None:
        kind, stage, _ = done
        if kind == Op.WHOLE:
            self.held[rank] -= 1
            self.ended[stage] += 1
        if kind == Op.FORWARD and stage + 1 < self.stages:
            self.arrived[kind][stage + 1] += 1
        elif kind == Op.FORWARD:
            self.arrived[Op.WHOLE][stage] += 1
        elif stage > 0:
            self.arrived[kind][stage - 1] += 1


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    waves = (Wave(shape, rule).run() for rule in _rules(shape))
    soonest = min(waves, key=lambda wave: (wave.now, wave.peak))
    return program_of(soonest.rows, shape.pp * shape.vpp, shape.num_microbatches)


def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight at most: those that each stage may hold. Source: `most_held`."""
    pp, vpp = layers.shape
    most = most_held(pp, vpp, num_microbatches)
    return np.asarray(most[placed("v", pp, vpp)], dtype=np.float64)


SCHEDULE = Schedule(
    program,
    held,
    whole_backward_bound,
    rounds_to_fill=5,
    placement="v",
    least_vpp=2,
    most_vpp=sys.maxsize,
    rules=(
        ShapeRule(
            "vpp must be even: two virtual stages on a rank make a wave",
            lambda pp, vpp, m: np.asarray(vpp % 2 != 0),
        ),
    ),
)

"""Hanayo: micro batches walk the ranks in waves, there and back again, without a second model.

A rank holds an even number of virtual stages on a zig-zag, so a micro batch turns around on one
rank at every end of a wave. Each rank runs a backward pass if one is ready, else a forward pass of
its deepest virtual stage or of the oldest micro batch, whichever rule ends first; at most p micro
batches are under way. The gain shows in steps of few micro batches.
Source: Liu et al., Hanayo: Harnessing Wave-like Pipeline Parallelism, SC 2023, arXiv:2308.15762,
section 3; the rule of choice is derived from its figures.
"""

from __future__ import annotations

import sys
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.schedules.bounds import whole_backward_bound
from trainplan.costmodel.schedules.program import (
    IntMatrix,
    Op,
    Pass,
    Program,
    RelativeSeconds,
    Shape,
    placed,
    program_of,
)
from trainplan.costmodel.schedules.schedule import Schedule, ShapeRule

SECONDS = {Op.FORWARD: 1, Op.WHOLE: 2}
"""Durations the order is made for. Source: Liu et al., section 3: backward takes twice forward."""


class Ready(NamedTuple):
    """A pass whose input is there; the smallest runs first."""

    forward: bool
    first: tuple[int, int]
    """Place of the pass among those alike."""
    done: Pass


class Wave:
    """One run: ranks take the first pass that is ready; times are whole numbers."""

    def __init__(self, shape: Shape, *, oldest: bool) -> None:
        self.shape, self.oldest, self.stages = shape, oldest, shape.pp * shape.vpp
        ranks = np.repeat(np.arange(shape.pp)[:, None], shape.vpp, axis=1)
        order = np.argsort(placed("v", shape.pp, shape.vpp).ravel())
        self.rank_of: list[int] = ranks.ravel()[order].tolist()
        self.rows: list[list[Pass]] = [[] for _ in range(shape.pp)]
        self.ready: list[list[Ready]] = [[] for _ in range(shape.pp)]
        self.ends: list[tuple[int, int]] = []
        """Time and rank of the ops that run."""
        self.entered = self.now = 0

    def run(self) -> Wave:
        """Run all micro batches."""
        for _ in range(min(self.shape.pp, self.shape.num_microbatches)):
            self._enter()
        idle = set(range(self.shape.pp))
        while True:
            idle -= {rank for rank in idle if self._start(rank)}
            if not self.ends:
                return self
            self.now = self.ends[0][0]
            while self.ends and self.ends[0][0] == self.now:
                rank = heappop(self.ends)[1]
                self._finish(self.rows[rank][-1])
                idle.add(rank)

    def _enter(self) -> None:
        if self.entered < self.shape.num_microbatches:
            self._offer(Op.FORWARD, 0, self.entered)
            self.entered += 1

    def _offer(self, kind: Op, stage: int, microbatch: int) -> None:
        first = (microbatch, -stage) if self.oldest else (-stage, microbatch)
        offered = Ready(kind == Op.FORWARD, first, Pass(kind, stage, microbatch))
        heappush(self.ready[self.rank_of[stage]], offered)

    def _start(self, rank: int) -> bool:
        if not self.ready[rank]:
            return False
        taken = heappop(self.ready[rank]).done
        self.rows[rank].append(taken)
        heappush(self.ends, (self.now + SECONDS[taken.kind], rank))
        return True

    def _finish(self, done: Pass) -> None:
        kind, stage, microbatch = done
        if kind == Op.FORWARD and stage + 1 < self.stages:
            self._offer(kind, stage + 1, microbatch)
        elif kind == Op.FORWARD:
            self._offer(Op.WHOLE, stage, microbatch)
        elif stage > 0:
            self._offer(kind, stage - 1, microbatch)
        else:
            self._enter()


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    waves = [Wave(shape, oldest=oldest).run() for oldest in (False, True)]
    soonest = min(waves, key=lambda wave: wave.now)
    return program_of(soonest.rows, shape.pp * shape.vpp, shape.num_microbatches)


def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight at most: every micro batch under way. Source: that of the module."""
    return np.full(layers.shape, float(min(num_microbatches, len(layers))))


def _odd(pp: IntColumn, vpp: IntColumn, num_microbatches: IntColumn) -> BoolColumn:
    return np.asarray(vpp % 2 != 0)


WAVES = ShapeRule("vpp must be even: two virtual stages on a rank make a wave", _odd)
SCHEDULE = Schedule(
    program,
    held,
    whole_backward_bound,
    rounds_to_fill=1,
    placement="v",
    least_vpp=2,
    most_vpp=sys.maxsize,
    rules=(WAVES,),
)

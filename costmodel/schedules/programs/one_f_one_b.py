"""1F1B: start a backward pass as soon as one is ready."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.program import Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.bounds import Work
from trainplan.costmodel.schedules.patterns.frames import (
    PassOrder,
    alternating_held,
    one_forward_one_backward,
)
from trainplan.costmodel.schedules.schedule import Schedule


def order(num_microbatches: int) -> PassOrder:
    """Micro batches in turn. Source: Narayanan et al., arXiv:2006.09503, section 2."""
    microbatches = np.arange(num_microbatches)
    chunk = np.zeros(num_microbatches, dtype=np.int64)
    return PassOrder(chunk, microbatches, chunk, microbatches)


def warmup(pp: int) -> IntColumn:
    """Forward passes of each rank before its first backward. Source: as `order`."""
    return pp - 1 - np.arange(pp)


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    return one_forward_one_backward(order(shape.num_microbatches), warmup(shape.pp), shape)


def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight. Source: as `alternating_held`."""
    return alternating_held(order(num_microbatches), warmup(len(layers)), layers, 1)


def bound(work: Work) -> FloatColumn:
    """Equation (1) of `bounds`, with detours.

    Rank r holds at most p - r micro batches, so from a backward pass on rank r the path up to rank
    0 and down again with the micro batch p later replaces r of rank r's own pairs; every such
    detour that is longer than the pairs it replaces adds to (1).
    Source: docs/explanation/search.md, "The pipeline bound".
    """
    seconds = work.seconds
    way = seconds.reach + seconds.home
    straight = way + work.microbatches * seconds.pair
    beyond = (work.microbatches - 1 - work.pp).astype(np.float64)
    detours = (beyond >= 0) * (np.floor(beyond / (work.rank + 1)) + 1)
    longer = np.maximum(0.0, way - work.rank * seconds.pair)
    return np.asarray((straight + detours * longer).max(axis=0))


SCHEDULE = Schedule(program, held, bound, rounds_to_fill=1, repeats=True)

"""Breadth-first: every micro batch through one virtual stage before the next stage.

It holds all micro batches, but gathers the weights of a virtual stage once, and their gradients
are done early: a schedule for sharded weights.
"""

from __future__ import annotations

import sys

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntMatrix
from trainplan.costmodel.program import Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.bounds import whole_backward_bound
from trainplan.costmodel.schedules.patterns.frames import chunked_order, one_forward_one_backward
from trainplan.costmodel.schedules.schedule import ALL_MICROBATCHES, Schedule


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank; the backward pass takes micro batches from the last.

    Source: Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023, arXiv:2211.05953, section
    4; the order of backward passes as torch.distributed.pipelining, ScheduleLoopedBFS.
    """
    m = shape.num_microbatches
    order = chunked_order(shape, m, reverse=True)
    return one_forward_one_backward(order, np.full(shape.pp, m * shape.vpp), shape)


def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight: every micro batch. Source: as `program`."""
    return np.full(layers.shape, float(num_microbatches))


SCHEDULE = Schedule(
    program,
    held,
    whole_backward_bound,
    rounds_to_fill=ALL_MICROBATCHES,
    least_vpp=2,
    most_vpp=sys.maxsize,
    forward_first=True,
    stage_by_stage="always",
)

"""ZB-H1: 1F1B with the weight gradients put off until the rank would wait.

Every rank holds what 1F1B holds on its first. With several virtual stages a rank, the groups are
those of interleaved 1F1B and the warm-up is shorter: a gradient comes home by B only.
Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 2.1, figure 2;
virtual stages as torch.distributed.pipelining `schedules.py`, `ScheduleInterleavedZeroBubble`.
"""

from __future__ import annotations

import sys

import numpy as np

from trainplan.costmodel.columns import BoolColumn, IntColumn
from trainplan.costmodel.program import Program, RelativeSeconds, Shape, held_by
from trainplan.costmodel.schedules.bounds import split_chunks_bound
from trainplan.costmodel.schedules.patterns.frames import chunked_order, weights_behind
from trainplan.costmodel.schedules.programs.interleaved import (
    WHOLE_GROUPS,
    group_size,
    splits_unevenly,
)
from trainplan.costmodel.schedules.schedule import Schedule, ShapeRule


def warmup(pp: int, vpp: int, group: int) -> IntColumn:
    """Forward passes of each rank before it takes turns. Source: that of the module."""
    return pp - 1 - np.arange(pp) + (vpp - 1) * group


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    group = group_size(shape)
    first = warmup(shape.pp, shape.vpp, group)
    return weights_behind(chunked_order(shape, group), first, np.arange(shape.pp), shape)


def _splits_unevenly(pp: IntColumn, vpp: IntColumn, num_microbatches: IntColumn) -> BoolColumn:
    return np.asarray((vpp > 1) & splits_unevenly(pp, vpp, num_microbatches))


SCHEDULE = Schedule(
    program,
    held_by(program),
    split_chunks_bound,
    rounds_to_fill=2,
    most_vpp=sys.maxsize,
    rules=(ShapeRule(WHOLE_GROUPS.says, _splits_unevenly),),
    options=frozenset({"microbatch_group_size"}),
    splits_backward=True,
    repeats=True,
)

"""GPipe: all forward passes, then all backward passes."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntMatrix
from trainplan.costmodel.program import Op, Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.bounds import whole_backward_bound
from trainplan.costmodel.schedules.patterns.frames import single_stage_program
from trainplan.costmodel.schedules.schedule import ALL_MICROBATCHES, Schedule


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank.

    Source: Huang et al., GPipe, NeurIPS 2019, arXiv:1811.06965, section 2.3.
    """
    m = shape.num_microbatches
    kinds = [int(Op.FORWARD)] * m + [int(Op.WHOLE)] * m
    return single_stage_program([kinds] * shape.pp, m)


def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight: every micro batch. Source: as `program`."""
    return np.full(layers.shape, float(num_microbatches))


SCHEDULE = Schedule(
    program,
    held,
    whole_backward_bound,
    rounds_to_fill=ALL_MICROBATCHES,
    forward_first=True,
)

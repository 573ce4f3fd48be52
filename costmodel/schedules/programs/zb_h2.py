"""ZB-H2: ZB-H1 with a warm-up twice as deep, so that no rank waits in the steady phase.

Every rank holds 2p - 1 micro batches.
Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 2.2, figure 3.
"""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.program import Program, RelativeSeconds, Shape, held_by
from trainplan.costmodel.schedules.bounds import Work, split_backward_bound
from trainplan.costmodel.schedules.patterns.frames import weights_behind
from trainplan.costmodel.schedules.programs.one_f_one_b import order
from trainplan.costmodel.schedules.schedule import Schedule, ShapeRule


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    rank = np.arange(shape.pp)
    first = 2 * (shape.pp - 1 - rank)
    return weights_behind(order(shape.num_microbatches), first, 2 * rank, shape)


def bound(work: Work) -> FloatColumn:
    """Seconds no order beats. Source: as `split_backward_bound`."""
    return split_backward_bound(work, 2 * work.pp - 1)


def _too_short(pp: IntColumn, vpp: IntColumn, num_microbatches: IntColumn) -> BoolColumn:
    return np.asarray(num_microbatches < 2 * pp - 1)


FILLS = ShapeRule(
    "num_microbatches must be at least 2 * pp - 1, so that the warm-up fills the pipeline",
    _too_short,
)
SCHEDULE = Schedule(
    program,
    held_by(program),
    bound,
    rounds_to_fill=2,
    rules=(FILLS,),
    splits_backward=True,
    repeats=True,
)

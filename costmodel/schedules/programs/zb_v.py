"""ZB-V: split backward passes on a V, in the memory of 1F1B.

The first rank holds the first and the last virtual stage, so a micro batch turns around at once.
Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 6, figure 6; the
order as torch.distributed.pipelining `schedules.py`, `ScheduleZBVZeroBubble`.
"""

from __future__ import annotations

from trainplan.costmodel.program import Program, RelativeSeconds, Shape, held_by
from trainplan.costmodel.schedules.bounds import split_chunks_bound
from trainplan.costmodel.schedules.patterns.frames import (
    B0,
    B1,
    F0,
    F1,
    W0,
    W1,
    Turn,
    first_microbatches,
    walked,
)
from trainplan.costmodel.schedules.schedule import Schedule


def turns(pp: int, rank: int, num_microbatches: int) -> list[Turn]:
    """Ops of a rank, of at least 2p - 1 micro batches. Source: that of the module."""
    behind = pp - rank
    filling = num_microbatches - pp - behind + 1
    return [
        *[F0] * (2 * behind - 1),
        *[F1, F0] * rank,
        *[F1, B1, W1] * behind,
        *[F0, B0, W0, F1, B1, W1] * filling,
        *[B0, W0, F1, B1, W1] * (behind - 1),
        *[B0, B1] * rank,
        *[B0, W0] * behind,
        *[W1] * rank,
        *[W0] * rank,
    ]


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank. A short step is the start of one that fills the pipeline."""
    pp, m = shape.pp, shape.num_microbatches
    enough = max(2 * pp - 1, m)
    filled = shape._replace(num_microbatches=enough)
    return first_microbatches(walked([turns(pp, rank, enough) for rank in range(pp)], filled), m)


SCHEDULE = Schedule(
    program,
    held_by(program),
    split_chunks_bound,
    rounds_to_fill=2,
    placement="v",
    least_vpp=2,
    most_vpp=2,
    splits_backward=True,
    repeats=True,
)

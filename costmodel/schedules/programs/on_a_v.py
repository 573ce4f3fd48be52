"""Two virtual stages a rank on a V: the first rank has the first stage and the last."""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.program import Op, Program, RelativeSeconds, Shape, held_by
from trainplan.costmodel.schedules.patterns.frames import (
    B0,
    B1,
    F0,
    F1,
    W0,
    W1,
    WHOLE0,
    WHOLE1,
    Turn,
    first_microbatches,
    walked,
)
from trainplan.costmodel.schedules.schedule import Schedule, ShapeRule, split_chunks_bound


def zb_v_turns(pp: int, rank: int, num_microbatches: int) -> list[Turn]:
    """Ops of a rank, of at least 2p - 1 micro batches. Source: that of `ZB_V`."""
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


def zb_v_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank. A short step is the start of one that fills the pipeline."""
    pp, m = shape.pp, shape.num_microbatches
    enough = max(2 * pp - 1, m)
    filled = shape._replace(num_microbatches=enough)
    return first_microbatches(
        walked([zb_v_turns(pp, rank, enough) for rank in range(pp)], filled), m
    )


ZB_V = Schedule(
    zb_v_program,
    held_by(zb_v_program),
    split_chunks_bound,
    rounds_to_fill=2,
    placement="v",
    least_vpp=2,
    most_vpp=2,
    splits_backward=True,
    repeats=True,
)
"""ZB-V: split backward passes on a V, in the memory of 1F1B.

The first rank holds the first and the last virtual stage, so a micro batch turns around at once.
Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 6, figure 6; the
order as torch.distributed.pipelining `schedules.py`, `ScheduleZBVZeroBubble`."""


def dualpipe_v_turns(pp: int, rank: int, num_microbatches: int) -> list[Turn]:
    """Ops of a rank. Source: that of `DUALPIPE_V`."""
    behind = pp - rank - 1
    return [
        *[F0] * (2 * behind),
        *[F0, F1] * (rank + 1),
        *[B1, W1, F1] * behind,
        *[F0, WHOLE1, F1, WHOLE0] * (num_microbatches - 2 * pp + rank + 1),
        *[WHOLE1, F1, WHOLE0] * behind,
        *_drain(rank, behind),
    ]


def _drain(rank: int, behind: int) -> list[Turn]:
    """Backward passes up and down in turn, half of them split; W once ranks behind are done.

    Source: that of `DUALPIPE_V`.
    """
    whole = ([WHOLE1, WHOLE0] * (rank + 1))[: rank + 1]
    split = ([B1, B0] * (rank + 1))[rank + 1 :]
    waiting = [W1 if turn == B1 else W0 for turn in split] + [W0] * behind
    drained = [turn for weight in waiting[:behind] for turn in (weight, B0)]
    return [*whole, *split, *drained, *waiting[behind:]]


def dualpipe_v_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    pp, m = shape.pp, shape.num_microbatches
    single = walked([dualpipe_v_turns(pp, rank, m) for rank in range(pp)], shape)
    return replace(single, joint=_pairs(single))


def _pairs(program: Program) -> BoolColumn:
    """Every F with the whole backward pass behind it; on the last rank the first two stay apart.

    Source: that of `DUALPIPE_V`, steps 4 and 5.
    """
    pairs = np.zeros(program.kind.shape, dtype=bool)
    forward, behind = program.kind[:, :-1] == Op.FORWARD, program.kind[:, 1:] == Op.WHOLE
    pairs[:, :-1] = forward & behind
    pairs[-1, pairs[-1].argmax()] = False
    return pairs


DUALPIPE_V = Schedule(
    dualpipe_v_program,
    held_by(dualpipe_v_program),
    split_chunks_bound,
    rounds_to_fill=2,
    placement="v",
    least_vpp=2,
    most_vpp=2,
    rules=(
        ShapeRule(
            "num_microbatches must be at least 2 * pp, so that both ways are full",
            lambda pp, vpp, m: np.asarray(m < 2 * pp),
        ),
    ),
    splits_backward=True,
    repeats=True,
)
"""DualPipeV: F of one virtual stage beside the backward pass of the other, on a V.

A rank pairs a pass down the V with one up it, so that messages of either hide behind the work of
the other. Here the two run one after the other, F first, as a runtime without a joint kernel does;
the pair is one action, so that F, too, is sent when the backward pass ends.
Weight gradients run apart only where ranks would wait: before the steady phase and after it.
Source: DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.2.1, halved to a V;
the order as torch.distributed.pipelining `schedules.py`, `ScheduleDualPipeV`."""

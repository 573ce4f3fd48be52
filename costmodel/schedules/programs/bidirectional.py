"""Chimera and DualPipe: two copies of the model, in opposite directions on the same ranks.

Half of the micro batches enter at the first rank, half at the last, so that one half fills the
other's bubble. Every rank holds the weights of two stages, and gradients of the copies are summed.
"""

import numpy as np

from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntMatrix
from trainplan.costmodel.program import Op, Pass, Program, RelativeSeconds, Shape, program_of
from trainplan.costmodel.schedules.programs.on_a_v import dualpipe_v_program
from trainplan.costmodel.schedules.schedule import (
    Schedule,
    ShapeRule,
    split_chunks_bound,
    whole_backward_bound,
)

MIRRORED = ShapeRule(
    "pp must be even, so that ranks mirror each other", lambda pp, vpp, m: np.asarray(pp % 2 != 0)
)


def chimera_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank: units of p micro batches, p / 2 in each direction.

    With passes of one slot, micro batch k of a unit runs forward on stage s in slot s + 2 k and
    backward in slot 2 p - 1 - s + 2 k; the directions never meet in a slot.
    Source: Li and Hoefler, Chimera, SC 2021, arXiv:2107.06925, section 3.1.
    """
    pp = shape.pp
    slots: list[list[tuple[int, Pass]]] = [[] for _ in range(pp)]
    for microbatch in range(shape.num_microbatches):
        unit, inside = divmod(microbatch, pp)
        copy, k = divmod(inside, pp // 2)
        for stage in range(pp):
            rank, own = pp - 1 - stage if copy else stage, stage + copy * pp
            start = 2 * pp * unit + 2 * k
            slots[rank].append((start + stage, Pass(Op.FORWARD, own, microbatch)))
            back = start + 2 * pp - 1 - stage
            slots[rank].append((back, Pass(Op.WHOLE, own, microbatch)))
    rows = [[one for _, one in sorted(row)] for row in slots]
    return program_of(rows, pp, shape.num_microbatches, copies=2)


def chimera_held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight at most, both directions together. Source: Chimera, section 3.2."""
    return np.full(layers.shape, float(min(num_microbatches, len(layers))))


CHIMERA = Schedule(
    chimera_program,
    chimera_held,
    whole_backward_bound,
    rounds_to_fill=1,
    rules=(
        MIRRORED,
        ShapeRule(
            "num_microbatches must be a multiple of pp", lambda pp, vpp, m: np.asarray(m % pp != 0)
        ),
    ),
)


def dualpipe_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank: a V of half the ranks, which each half of them runs.

    What goes up a V is, for a rank of one half, what the other direction sends down to it: rank r
    of p runs the order of rank min(r, p - 1 - r) of a V of p / 2, on half of the micro batches.
    Source: deepseek-ai/DualPipe @3da1bbea `dualpipe/dualpipe.py`, DualPipe.step, whose phases
    swap in the second half of the ranks, and `dualpipev.py`, which cuts it in half.
    """
    pp, m = shape.pp, shape.num_microbatches
    v = dualpipe_v_program(Shape(pp // 2, 2, m // 2), relative)
    up, real = v.stage >= pp // 2, v.kind != Op.NONE

    def half(other: BoolColumn) -> tuple[IntMatrix, IntMatrix]:
        return v.stage + pp * (other & real), v.microbatch + m // 2 * (other & real)

    halves = zip(half(up), [rows[::-1] for rows in half(~up)], strict=True)
    stage, microbatch = (np.concatenate(both) for both in halves)
    kind = np.concatenate([v.kind, v.kind[::-1]])
    assert v.joint is not None
    joint = np.concatenate([v.joint, v.joint[::-1]])
    return Program(kind, stage, microbatch, pp, m, copies=2, joint=joint)


def dualpipe_held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight at most, both directions together. Source: that of `DUALPIPE`, table."""
    return np.full(layers.shape, float(min(num_microbatches, len(layers) + 1)))


DUALPIPE = Schedule(
    dualpipe_program,
    dualpipe_held,
    split_chunks_bound,
    rounds_to_fill=2,
    rules=(
        MIRRORED,
        ShapeRule(
            "num_microbatches must be even and at least 2 * pp, so that both ways are full",
            lambda pp, vpp, m: np.asarray((m < 2 * pp) | (m % 2 != 0)),
        ),
    ),
    splits_backward=True,
)
"""DualPipe: F of one direction beside the backward pass of the other, from both ends at once.

The same step as DualPipeV on half the ranks with twice the replicas, each with half of the micro
batches: two ranks hold the stages of one rank of the V. The V has no message where it turns, so
it is never slower.
Source: DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.2.1, table 2;
deepseek-ai/DualPipe @3da1bbea `README.md`."""

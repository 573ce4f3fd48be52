"""Chimera: two copies of the model, in opposite directions on the same ranks.

Half of the micro batches enter at the first rank, half at the last, so that one half fills the
other's bubble. Every rank holds the weights of two stages, and gradients of the copies are summed.
"""

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntMatrix
from trainplan.costmodel.program import Op, Pass, Program, RelativeSeconds, Shape, program_of
from trainplan.costmodel.schedules.schedule import Schedule, ShapeRule, whole_backward_bound


def program(shape: Shape, relative: RelativeSeconds) -> Program:
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


def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight at most, both directions together. Source: Chimera, section 3.2."""
    return np.full(layers.shape, float(min(num_microbatches, len(layers))))


SCHEDULE = Schedule(
    program,
    held,
    whole_backward_bound,
    rounds_to_fill=1,
    rules=(
        ShapeRule(
            "pp must be even, so that ranks mirror each other",
            lambda pp, vpp, m: np.asarray(pp % 2 != 0),
        ),
        ShapeRule(
            "num_microbatches must be a multiple of pp", lambda pp, vpp, m: np.asarray(m % pp != 0)
        ),
    ),
)

"""1F1B with the output layer on all ranks.

A large vocabulary makes the last stage the slowest. Here each rank holds a share of the output
layer and runs its part of every micro batch: S (logits and their softmax so far) and T (gradients).
The last stage's backward pass waits for all shares: with two barriers for S and then T, with one
for S alone, which then makes the input's gradient too.
Source: Yeung et al., Balancing Pipeline Parallelism with Vocabulary Parallelism,
arXiv:2411.05288, sections 4 and 5: one or two micro batches more in flight.
"""

from functools import partial
from typing import NamedTuple

from trainplan.costmodel.program import (
    Op,
    Pass,
    Program,
    RelativeSeconds,
    Shape,
    held_by,
    program_of,
)
from trainplan.costmodel.schedules.schedule import Schedule, whole_backward_bound


class Slots(NamedTuple):
    """A repeated block in which every rank runs F, then the whole backward pass, then S and T.

    Source: assumed: a backward pass of two forward passes and shares of a quarter each; it decides
    the order of ops alone, never a duration.
    """

    forward: int = 12
    backward: int = 24
    share: int = 3

    @property
    def length(self) -> int:
        """One micro batch.

        Source: in one block of the schedule a rank runs F, B and its two shares S and T of the
        output layer, one after the other.
        """
        return self.forward + self.backward + 2 * self.share

    @property
    def stride(self) -> int:
        """From the F of a rank to that of the next one; its B is as much later as fills the block.

        Source: derived: F and B of a rank then follow one another in every block.
        """
        return self.length * self.forward // (self.forward + self.backward)


def program(shape: Shape, relative: RelativeSeconds, *, barriers: int) -> Program:
    """Ops of every rank.

    The last rank ends F at time d of the block. Each rank runs S in the first gap behind d, one
    block at most later; T a block after S; the last rank its B as many blocks after d as there are
    barriers.

    Source: each start is a place in the repeating block, moved back by whole blocks until what the
    module says the op needs has been done.
    """
    slots, pp = Slots(), shape.pp
    done = (pp - 1) * slots.stride + slots.forward
    rows = []
    for rank in range(pp):
        gap = rank * slots.stride + slots.forward + slots.backward
        scores = gap - (gap - done) // slots.length * slots.length
        home = (pp - 1 - rank) * (slots.length - slots.stride)
        starts = {
            Op.FORWARD: rank * slots.stride,
            Op.VOCAB_FORWARD: scores,
            Op.VOCAB_BACKWARD: scores + slots.share + slots.length,
            Op.WHOLE: done + barriers * slots.length + home,
        }
        ops = sorted(
            (start + slots.length * i, kind, i)
            for kind, start in starts.items()
            for i in range(shape.num_microbatches)
        )
        rows.append([Pass(kind, rank, i) for _, kind, i in ops])
    return program_of(rows, pp, shape.num_microbatches, barriers=barriers)


def _with(barriers: int) -> Schedule:
    """The schedule with one or two barriers."""
    build = partial(program, barriers=barriers)
    return Schedule(build, held_by(build), whole_backward_bound, rounds_to_fill=3)


ONE_BARRIER = _with(1)
TWO_BARRIERS = _with(2)

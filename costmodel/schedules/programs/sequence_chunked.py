"""1F1B of sequence chunks: several passes through a stage for one long sequence.

A micro batch is cut along its sequence. Chunks go forward from the first, because each reads the
keys and values of those before it, and backward from the last. The pipeline fills with chunks,
so bubble and activations shrink with their number.
"""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.program import Program, RelativeSeconds, Shape, held_by
from trainplan.costmodel.schedules.bounds import whole_backward_bound
from trainplan.costmodel.schedules.patterns.frames import PassOrder, one_forward_one_backward
from trainplan.costmodel.schedules.schedule import Schedule


def order(shape: Shape) -> PassOrder:
    """Chunks of each micro batch forward, then backward from its last.

    Source: Sun et al., Seq1F1B, arXiv:2406.03488, section 3.2.
    """
    k = shape.sequence_chunks
    forward = np.arange(shape.num_microbatches * k)
    backward = forward - forward % k + k - 1 - forward % k
    chunk = np.zeros_like(forward)
    return PassOrder(chunk, forward, chunk, backward)


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank. Source: as `order`; a rank warms up with p - r - 2 + chunks passes."""
    warmup = shape.pp - 2 - np.arange(shape.pp) + shape.sequence_chunks
    return one_forward_one_backward(order(shape), warmup, shape)


def causal_shares(sequence_chunks: int, attention_share: float) -> FloatColumn:
    """Share of a whole pass that each chunk of a causal sequence takes; sums to 1.

    Of k equal chunks, chunk j attends to j chunks and half of itself: (2 j + 1) / k^2 of the
    attention. `attention_share` is the attention's share of the pass.
    Source: derived; Sun et al., Seq1F1B, arXiv:2406.03488, section 3.4.
    """
    k, chunk = sequence_chunks, np.arange(sequence_chunks)
    return np.asarray((1 - attention_share) / k + attention_share * (2 * chunk + 1) / k**2)


SCHEDULE = Schedule(
    program,
    held_by(program),
    whole_backward_bound,
    rounds_to_fill=1,
    options=frozenset({"sequence_chunks"}),
)

"""What schedules on a V have in common: each rank holds a stage of the way down and one up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.schedules.program import Op, Program, Shape, placed


class Turn(NamedTuple):
    """One op of a rank, on one of its virtual stages."""

    kind: Op
    chunk: int


F0, F1 = Turn(Op.FORWARD, 0), Turn(Op.FORWARD, 1)
B0, B1 = Turn(Op.BACKWARD, 0), Turn(Op.BACKWARD, 1)
W0, W1 = Turn(Op.WEIGHT, 0), Turn(Op.WEIGHT, 1)
WHOLE0, WHOLE1 = Turn(Op.WHOLE, 0), Turn(Op.WHOLE, 1)


def walked(rows: Sequence[Sequence[Turn]], shape: Shape) -> Program:
    """Program from the turns of each rank; on a chunk, every kind walks the micro batches in turn.

    B and WHOLE walk together; the weight gradients are those of the micro batches that ran B.
    """
    longest = max(map(len, rows))
    turns = np.full((2, len(rows), longest), int(Op.NONE), dtype=np.int64)
    for rank, row in enumerate(rows):
        turns[:, rank, : len(row)] = np.array(row, dtype=np.int64).T
    kind, chunk = turns
    microbatch = np.zeros_like(kind)
    for number in range(shape.vpp):
        here = chunk == number
        forward = here & (kind == Op.FORWARD)
        split = here & (kind == Op.BACKWARD)
        for some in (forward, split | (here & (kind == Op.WHOLE))):
            microbatch[some] = (np.cumsum(some, axis=1) - 1)[some]
        microbatch[here & (kind == Op.WEIGHT)] = microbatch[split]
    stage = np.take_along_axis(placed("v", shape.pp, shape.vpp), np.maximum(chunk, 0), axis=1)
    stage = np.where(kind == Op.NONE, 0, stage)
    return Program(kind, stage, microbatch, shape.pp * shape.vpp, shape.num_microbatches)


def first_microbatches(program: Program, count: int) -> Program:
    """The program without the micro batches from the `count`-th on, which all ranks run."""
    kept = program.microbatch < count
    parts = (program.kind, program.stage, program.microbatch)
    kind, stage, microbatch = (part[kept].reshape(len(kept), -1) for part in parts)
    return Program(kind, stage, microbatch, program.num_stages, count)

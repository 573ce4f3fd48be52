"""Activations that wait on the host: each rank gets a lane that copies beside its passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, IntColumn
from trainplan.costmodel.schedules.program import Op, Program

AHEAD = 1
"""Passes a rank may still run while the activations of the next one are on their way back.

Source: assumed: the least that hides the copy; more would hold more.
"""


def with_copies(program: Program, copied: BoolColumn) -> Program:
    """The program with the activations of some virtual stages copied out and back.

    `copied` has one entry for each virtual stage. A lane copies one pass at a time, in the order
    of the ops it serves: out behind the forward pass, back `AHEAD` of the backward pass. A pass
    that goes backward sooner than that stays.
    Source: Wan et al., PipeOffload, arXiv:2503.01328, sections 3.1 and 3.2.
    """
    lanes = [_lane(program, row, copied) for row in range(program.pp)]
    positions = max(program.kind.shape[1], *(len(lane[0]) for lane in lanes))
    fresh = [np.full((2 * program.pp, positions), fill) for fill in (int(Op.NONE), 0, 0)]
    own = program.kind, program.stage, program.microbatch
    for column, (matrix, before) in enumerate(zip(fresh, own, strict=True)):
        matrix[: program.pp, : before.shape[1]] = before
        for row, lane in enumerate(lanes, start=program.pp):
            matrix[row, : len(lane[column])] = lane[column]
    kind, stage, microbatch = fresh
    return replace(program, kind=kind, stage=stage, microbatch=microbatch, copy_lanes=True)


def _lane(program: Program, row: int, copied: BoolColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Kind, stage and micro batch of the copies of one rank, in order."""
    kind, stage, microbatch = program.kind[row], program.stage[row], program.microbatch[row]
    numbers = stage * program.passes + microbatch
    leaves = np.flatnonzero(kind == Op.FORWARD)
    returns = np.flatnonzero((kind == Op.BACKWARD) | (kind == Op.WHOLE))
    leaves = leaves[np.argsort(numbers[leaves])]
    returns = returns[np.argsort(numbers[returns])]
    away = copied[stage[leaves] % program.num_stages] & (returns - leaves > AHEAD + 1)
    leaves, returns = leaves[away], returns[away]
    served = np.concatenate([leaves, returns])
    when = np.concatenate([2 * leaves + 1, 2 * (returns - AHEAD)])
    kinds = np.repeat([int(Op.OFFLOAD), int(Op.RELOAD)], len(leaves))
    order = np.argsort(when, kind="stable")
    return kinds[order], stage[served][order], microbatch[served][order]

"""Activations in flight along a program: its order alone decides, not its clock.

Those that wait on the host: each rank gets a lane that copies beside its passes.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    IntColumn,
    IntMatrix,
    IntRankChunks,
    RankChunks,
    nondominated,
)
from trainplan.costmodel.program.ops import EQUAL, Op, Program, RelativeSeconds, Shape


def held_along(program: Program, layers: IntRankChunks) -> RankChunks:
    """Passes in flight on each rank when it holds most layers.

    `layers` has shape (rank, chunk); a rank without layers is fullest with most passes, of its
    other blocks. A pass is in flight from its forward op to the op that frees its activations.
    Source: counted op by op: passes in flight weigh as many layers as their chunk has, and the op
    behind which the weights add up to most is the fullest moment.
    """
    passes = _passes(program, layers.shape[1])
    weight = np.where(layers.any(axis=1, keepdims=True), layers, 1)
    fullest = np.argmax(np.einsum("rpc,rc->rp", passes, weight), axis=1)
    return np.asarray(passes[np.arange(program.pp), fullest], dtype=np.float64)


def _passes(program: Program, chunks: int) -> IntMatrix:
    """Passes in flight of every chunk after every op; (row, position, chunk).

    Source: counted op by op: a forward op adds one pass to its chunk and the op that frees it takes
    one away; the running sum is in flight.
    """
    change = program.starts_pass.astype(np.int64) - program.frees
    chunk = program.stage // program.pp
    return np.cumsum(change[..., None] * (chunk[..., None] == np.arange(chunks)), axis=1)


def _chunks(program: Program) -> int:
    """Virtual stages of each rank."""
    return int((program.stage // program.pp).max()) + 1


def most_held(program: Program) -> IntRankChunks:
    """Most passes of every chunk that are ever in flight, each by itself.

    Source: counted op by op: the largest of `_passes` behind any op of the rank, of each chunk by
    itself.
    """
    held = _passes(program, _chunks(program))
    return np.asarray(held[: program.pp].max(axis=1))


def held_moments(program: Program) -> tuple[IntMatrix, ...]:
    """Passes in flight on each rank when it may be fullest; of each rank, shape (moment, chunk).

    At any other moment one of these has at least as many passes of every chunk.

    Source: memory grows with the passes of every chunk, so a moment is not the fullest one where
    another has as many of each: no moment behind which a forward pass runs, nor one behind another
    op, which held no less before.
    """
    held, starts = _passes(program, _chunks(program)), program.starts_pass
    last = starts & ~np.pad(starts, ((0, 0), (0, 1)))[:, 1:]
    ranks = zip(held[: program.pp], last, strict=False)
    moments = (np.unique(rank[peaks], axis=0) for rank, peaks in ranks)
    return tuple(rows[nondominated(rows)] for rows in moments)


def peak_activations(program: Program, *, at_input_grad: bool = False) -> FloatColumn:
    """Most activations each rank ever holds, of one micro batch through one virtual stage each.

    They are freed at the end of the weight gradient, or `at_input_grad`, at the end of the input
    gradient. Without copies to the host.

    Source: `peak_activation_bytes` where each pass has one byte, freed as a whole by the op that is
    named: bytes are then passes.
    """
    ones, none = np.ones(program.num_stages), np.zeros(program.num_stages)
    return peak_activation_bytes(program, *((ones, none) if at_input_grad else (none, ones)))


def peak_activation_bytes(
    program: Program, at_input_grad: FloatColumn, at_weight_grad: FloatColumn
) -> FloatColumn:
    """Most bytes of activations each rank ever holds; shape (rank,).

    Both arguments hold bytes of one micro batch for each virtual stage: what the end of the input
    gradient frees, and what the weight gradient still needs. A whole backward pass frees both.
    Without copies to the host.

    Source: counted op by op: a forward op adds both parts, the input gradient takes the first and
    the op that frees takes the second; the peak is the largest running sum.
    """
    stage, kind = program.stage % program.num_stages, program.kind
    early, late = at_input_grad[stage], at_weight_grad[stage]
    whole = kind == Op.WHOLE
    change = (kind == Op.FORWARD) * (early + late)
    change = change - ((kind == Op.BACKWARD) | whole) * early - program.frees * late
    held = np.cumsum(change, axis=1)[: program.pp].max(axis=1)
    return np.asarray(held / program.sequence_chunks)


def held_by(
    program: Callable[[Shape, RelativeSeconds], Program],
) -> Callable[[int, IntMatrix], FloatColumn]:
    """`held_along` for a schedule whose order ignores relative durations."""

    @lru_cache(maxsize=64)
    def built(pp: int, vpp: int, num_microbatches: int) -> Program:
        return program(Shape(pp, vpp, num_microbatches), EQUAL)

    def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
        return held_along(built(*layers.shape, num_microbatches), layers)

    return held


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
    joint = None
    if program.joint is not None:
        joint = np.zeros(kind.shape, dtype=bool)
        joint[: program.pp, : program.joint.shape[1]] = program.joint
    copies = replace(program, kind=kind, stage=stage, microbatch=microbatch, joint=joint)
    return replace(copies, copy_lanes=True)


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

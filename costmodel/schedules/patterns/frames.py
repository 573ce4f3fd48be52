"""The frame 1F1B and its interleaved kin share: warm up, alternate, drain.

Schedules on a V: each rank holds a stage of the way down and one up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.program import Op, Program, Shape, placed


@dataclass(frozen=True, slots=True)
class PassOrder:
    """Order of the forward passes of any rank, and of its backward passes.

    `forward_chunk[i]` and `forward_microbatch[i]` are the chunk (which of the rank's virtual
    stages) and the micro batch of the i-th forward pass.
    """

    forward_chunk: IntColumn
    forward_microbatch: IntColumn
    backward_chunk: IntColumn
    backward_microbatch: IntColumn


def chunked_order(shape: Shape, group: int, *, reverse: bool = False) -> PassOrder:
    """Groups of micro batches through chunk 0, 1, ...; backward from the last chunk.

    `reverse` takes the micro batches of a group from the last in the backward pass.
    Source: Narayanan et al., SC 2021, arXiv:2104.04473, section 2.2.2, figure 4.
    """
    index = np.arange(shape.num_microbatches * shape.vpp)
    number, inside = np.divmod(index, group * shape.vpp)
    size = np.minimum(group, shape.num_microbatches - number * group)
    chunk, member = np.divmod(inside, size)
    last = size - 1 - member if reverse else member
    start = number * group
    return PassOrder(chunk, start + member, shape.vpp - 1 - chunk, start + last)


def one_forward_one_backward(order: PassOrder, warmup: IntColumn, shape: Shape) -> Program:
    """Program that runs `warmup[rank]` forward passes, alternates, then drains.

    Source: Narayanan et al., PipeDream-Flush, arXiv:2006.09503, section 2; the same frame carries
    the interleaved schedule of Narayanan et al., SC 2021, arXiv:2104.04473, section 2.2.2.
    """
    pp, vpp = shape.pp, shape.vpp
    passes = len(order.forward_chunk)
    position = np.arange(2 * passes)[None, :]
    first = np.minimum(warmup, passes)[:, None]
    steady = position - first
    in_steady = (steady >= 0) & (steady < 2 * (passes - first))
    is_backward = np.where(in_steady, steady % 2 == 1, position >= first)
    forward_index = np.where(in_steady, first + steady // 2, np.minimum(position, passes - 1))
    backward_index = np.where(in_steady, steady // 2, np.maximum(position - passes, 0))
    index = np.where(is_backward, backward_index, forward_index)
    chunk = np.where(is_backward, order.backward_chunk[index], order.forward_chunk[index])
    microbatch = np.where(
        is_backward, order.backward_microbatch[index], order.forward_microbatch[index]
    )
    return Program(
        kind=np.where(is_backward, int(Op.WHOLE), int(Op.FORWARD)),
        stage=chunk * pp + np.arange(pp)[:, None],
        microbatch=microbatch,
        num_stages=pp * vpp,
        num_microbatches=shape.num_microbatches,
        sequence_chunks=shape.sequence_chunks,
    )


def alternating_held(
    order: PassOrder, warmup: IntColumn, layers: IntMatrix, group: int
) -> FloatColumn:
    """As `held_along` for `one_forward_one_backward`, without its program.

    After the warm-up every forward pass is followed by a backward pass, so only the moments behind
    a forward pass count; they repeat with every `group` of micro batches.
    Source: behind the warm-up, moment i of a rank follows `warmup + 1 + i` forward and i backward
    passes; their difference by chunk is held. Tests compare it with the program.
    """
    pp, vpp = layers.shape
    passes = len(order.forward_chunk)
    chunks = np.arange(vpp)
    zero = np.zeros((1, vpp), dtype=np.int64)
    warmed = np.minimum(warmup + 1, passes)
    most = int(warmed.max()) + group * vpp
    ways = (way[:most, None] == chunks for way in (order.forward_chunk, order.backward_chunk))
    started, finished = (np.concatenate([zero, np.cumsum(way, axis=0)]) for way in ways)
    moment = np.minimum(np.arange(group * vpp)[None, :], (passes - warmed)[:, None])
    held = started[warmed[:, None] + moment] - finished[moment]
    fullest = np.argmax(np.einsum("rmc,rc->rm", held, layers), axis=1)
    return np.asarray(held[np.arange(pp), fullest], dtype=np.float64)


def weights_behind(order: PassOrder, warmup: IntColumn, lag: IntColumn, shape: Shape) -> Program:
    """Program that runs `warmup[rank]` forward passes, then F, B and W in turn.

    B sends the gradient of the input; W of the same pass follows `lag[rank]` turns later.
    Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 2, figures 2, 3.
    """
    passes = len(order.forward_chunk)
    index = np.arange(passes)[None, :]
    first = np.minimum(warmup, passes)[:, None]
    turns = np.stack([index - first, index + 0 * first, index + lag[:, None]], axis=1)
    when = (3 * turns + np.arange(3)[None, :, None]).reshape(shape.pp, -1)
    kind, number = np.divmod(np.argsort(when, axis=1), passes)
    forward = kind == 0
    chunk = np.where(forward, order.forward_chunk[number], order.backward_chunk[number])
    microbatch = np.where(
        forward, order.forward_microbatch[number], order.backward_microbatch[number]
    )
    return Program(
        kind=np.array([Op.FORWARD, Op.BACKWARD, Op.WEIGHT])[kind],
        stage=chunk * shape.pp + np.arange(shape.pp)[:, None],
        microbatch=microbatch,
        num_stages=shape.pp * shape.vpp,
        num_microbatches=shape.num_microbatches,
    )


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


def single_stage_program(kinds: Sequence[Sequence[int]], num_microbatches: int) -> Program:
    """Program of one virtual stage a rank, from the kinds of each rank's ops.

    Every kind walks the micro batches in turn.
    """
    kind = np.array(kinds, dtype=np.int64)
    microbatch = np.zeros_like(kind)
    for one in (Op.FORWARD, Op.BACKWARD, Op.WEIGHT, Op.WHOLE):
        same = kind == one
        microbatch[same] = (np.cumsum(same, axis=1) - 1)[same]
    stage = np.broadcast_to(np.arange(len(kind))[:, None], kind.shape)
    return Program(kind, stage, microbatch, len(kind), num_microbatches)

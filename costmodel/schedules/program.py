"""What each pipeline rank does, in order: the common form of every schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.table import BoolColumn, FloatColumn, IntColumn

IntMatrix = NDArray[np.int64]


class Op(IntEnum):
    """Kinds of op. The gradient of a stage's input is sent when BACKWARD or WHOLE ends."""

    FORWARD = 0
    BACKWARD = 1
    """Gradient of the input only (B); the gradient of the weights follows."""
    WEIGHT = 2
    """Gradient of the weights (W); frees the activations."""
    WHOLE = 3
    """Both gradients in one op (BW); frees the activations."""


class Shape(NamedTuple):
    """What a program depends on besides relative durations."""

    pp: int
    vpp: int
    num_microbatches: int


class RelativeSeconds(NamedTuple):
    """Durations of one virtual stage's passes and of a message, in a common unit."""

    forward: int
    backward: int
    """Without the gradient of the weights."""
    weight: int
    p2p: int


EQUAL = RelativeSeconds(16, 16, 16, 0)
"""All passes alike, messages instant."""


@dataclass(frozen=True, slots=True)
class Program:
    """Ops of every rank in issue order; matrices have shape (rank, position)."""

    kind: IntMatrix
    """Members of `Op`."""
    stage: IntMatrix
    """Virtual stage."""
    microbatch: IntMatrix
    num_stages: int
    num_microbatches: int

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return len(self.stage)

    @property
    def frees(self) -> BoolColumn:
        """Does the op free the activations of its pass?"""
        return np.asarray(self.kind >= Op.WEIGHT)

    @property
    def rank_of_stage(self) -> IntColumn:
        """The rank every virtual stage lives on."""
        rank = np.zeros(self.num_stages, dtype=np.int64)
        rank[self.stage] = np.arange(self.pp)[:, None]
        return rank


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


def one_forward_one_backward(order: PassOrder, warmup: IntColumn, shape: Shape) -> Program:
    """Program that runs `warmup[rank]` forward passes, alternates, then drains.

    Source: Narayanan et al., PipeDream-Flush, arXiv:2006.09503, section 2; the same frame carries
    the interleaved schedule of Narayanan et al., SC 2021, arXiv:2104.04473, section 2.2.2.
    """
    pp, vpp, _ = shape
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
        num_microbatches=passes // vpp,
    )


def single_stage_program(kinds: Sequence[Sequence[int]], num_microbatches: int) -> Program:
    """Program of one virtual stage a rank, from the kinds of each rank's ops.

    Every kind walks the micro batches in turn.
    """
    kind = np.array(kinds, dtype=np.int64)
    microbatch = np.zeros_like(kind)
    for one in Op:
        same = kind == one
        microbatch[same] = (np.cumsum(same, axis=1) - 1)[same]
    stage = np.broadcast_to(np.arange(len(kind))[:, None], kind.shape)
    return Program(kind, stage, microbatch, len(kind), num_microbatches)


def held_along(program: Program, layers: IntMatrix) -> FloatColumn:
    """Passes in flight on each rank when it holds most layers; shape (rank, chunk).

    `layers` has shape (rank, chunk). A pass is in flight from its forward op to the op that frees
    its activations. Source: derived, counted op by op.
    """
    change = np.where(program.frees, -1, np.where(program.kind == Op.FORWARD, 1, 0))
    chunks = np.arange(layers.shape[1])
    chunk = program.stage // program.pp
    passes = np.cumsum(change[..., None] * (chunk[..., None] == chunks), axis=1)
    fullest = np.argmax(np.einsum("rpc,rc->rp", passes, layers), axis=1)
    return np.asarray(passes[np.arange(program.pp), fullest], dtype=np.float64)


def alternating_held(order: PassOrder, warmup: IntColumn, layers: IntMatrix) -> FloatColumn:
    """As `held_along` for `one_forward_one_backward`, without its program.

    After the warm-up every forward pass is followed by a backward pass, so only the moments behind
    a forward pass count; they repeat every `pp * vpp` passes.
    Source: derived from the order of passes; tested against the program.
    """
    pp, vpp = layers.shape
    passes = len(order.forward_chunk)
    chunks = np.arange(vpp)
    zero = np.zeros((1, vpp), dtype=np.int64)
    started = np.concatenate([zero, np.cumsum(order.forward_chunk[:, None] == chunks, axis=0)])
    finished = np.concatenate([zero, np.cumsum(order.backward_chunk[:, None] == chunks, axis=0)])
    warmed = np.minimum(warmup + 1, passes)
    moment = np.minimum(np.arange(pp * vpp)[None, :], (passes - warmed)[:, None])
    held = started[warmed[:, None] + moment] - finished[moment]
    fullest = np.argmax(np.einsum("rmc,rc->rm", held, layers), axis=1)
    return np.asarray(held[np.arange(pp), fullest], dtype=np.float64)

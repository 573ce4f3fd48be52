"""What each pipeline rank does, in order: the common form of every schedule."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np

from trainplan.costmodel.columns import BoolColumn, IntColumn, IntMatrix

Placement = Literal["loop", "v"]
"""Rank of a virtual stage: `stage % pp`, or there and back again: 0, 1, ..., 1, 0, 0, 1, ..."""


class Op(IntEnum):
    """Kinds of op. The gradient of a stage's input is sent when BACKWARD or WHOLE ends."""

    NONE = -1
    """Nothing: fills the row of a rank that has fewer ops than others."""
    FORWARD = 0
    BACKWARD = 1
    """Gradient of the input only (B); the gradient of the weights follows."""
    WEIGHT = 2
    """Gradient of the weights (W); frees the activations."""
    WHOLE = 3
    """Both gradients in one op (BW); frees the activations."""
    VOCAB_FORWARD = 4
    """A rank's share of the output layer, forward; its stage is the number of the rank."""
    VOCAB_BACKWARD = 5
    """Gradients of a rank's share of the output layer."""
    OFFLOAD = 6
    """Copy of the activations of one pass to the host, on the rank's copy lane."""
    RELOAD = 7
    """Copy back."""


class Shape(NamedTuple):
    """What a program depends on besides relative durations."""

    pp: int
    vpp: int
    num_microbatches: int
    microbatch_group_size: int | None = None
    """Micro batches that go through one virtual stage in a row; null: as the schedule does."""
    memory_limit: int | None = None
    """Activations a rank may hold, of one micro batch through one virtual stage each; null: as
    the schedule does."""
    sequence_chunks: int = 1
    """Parts that the sequence of one micro batch is cut in."""


class RelativeSeconds(NamedTuple):
    """Durations of one virtual stage's passes and of a message, in a common unit."""

    forward: int
    backward: int
    """Without the gradient of the weights."""
    weight: int
    p2p: int


LARGEST_PROGRAM = 5_000_000
"""Ops of a program that is still built. Source: measured; about 200 bytes and 10 us an op."""
EQUAL = RelativeSeconds(16, 16, 16, 0)
"""All passes alike, messages instant."""


@dataclass(frozen=True, slots=True)
class Program:
    """Ops of every rank in issue order; matrices have shape (row, position).

    Row r is rank r. With `copy_lanes`, row pp + r is the lane that copies rank r's activations to
    the host and back, beside its passes.
    """

    kind: IntMatrix
    """Members of `Op`."""
    stage: IntMatrix
    """Virtual stage; in the second copy of a model, counted on from the first."""
    microbatch: IntMatrix
    """Micro batch; with sequence chunks, micro batch * sequence_chunks + chunk."""
    num_stages: int
    """Virtual stages of one copy of the model."""
    num_microbatches: int
    copies: int = 1
    """Copies of the model: micro batches walk the second one in the opposite direction."""
    sequence_chunks: int = 1
    barriers: int = 0
    """Barriers between the output layer's shares and the backward pass: 0 where one rank holds it
    whole, 1 or 2 where each rank holds a share."""
    copy_lanes: bool = False
    joint: BoolColumn | None = None
    """Is the op one action with the op behind it on its row? What either sends to other ranks
    leaves when the last op of the action ends; null: every op is its own action."""

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return len(self.stage) // (1 + self.copy_lanes)

    @property
    def passes(self) -> int:
        """Passes through one virtual stage: micro batches, or chunks of them."""
        return self.num_microbatches * self.sequence_chunks

    @property
    def all_stages(self) -> int:
        """Virtual stages of all copies of the model."""
        return self.num_stages * self.copies

    @property
    def lengths(self) -> IntColumn:
        """Ops of each row."""
        return np.asarray((self.kind != Op.NONE).sum(axis=1))

    @property
    def starts_pass(self) -> BoolColumn:
        """Does the op start to hold activations?"""
        return np.asarray(self.kind == Op.FORWARD)

    @property
    def frees(self) -> BoolColumn:
        """Does the op free the activations of its pass?"""
        return np.asarray((self.kind == Op.WEIGHT) | (self.kind == Op.WHOLE))

    @property
    def computes(self) -> BoolColumn:
        """Is the op a pass through a virtual stage?"""
        return np.asarray((self.kind >= Op.FORWARD) & (self.kind <= Op.WHOLE))

    @property
    def action_ends(self) -> IntColumn:
        """Flat index of the last op of the action of every op.

        Source: torch.distributed.pipelining `schedules.py`, `_add_send_recv`, which puts what all
        `sub_actions` of an action send behind the last of them.
        """
        flat = np.arange(self.kind.size).reshape(self.kind.shape)
        ends = flat if self.joint is None else np.where(self.joint, flat.size, flat)
        return np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1].ravel()

    @property
    def rank_of_stage(self) -> IntColumn:
        """The rank every virtual stage lives on; -1 where no rank runs it."""
        rank = np.full(self.all_stages, -1, dtype=np.int64)
        row, position = np.nonzero(self.computes)
        rank[self.stage[row, position]] = row
        return rank


class Pass(NamedTuple):
    """One op of one rank."""

    kind: Op
    stage: int
    microbatch: int


def program_of(
    rows: Sequence[Sequence[Pass]],
    num_stages: int,
    num_microbatches: int,
    *,
    copies: int = 1,
    sequence_chunks: int = 1,
    barriers: int = 0,
) -> Program:
    """Program from the ops of each rank, in order; rows may differ in length."""
    longest = max(len(row) for row in rows)
    matrix = np.zeros((3, len(rows), longest), dtype=np.int64)
    matrix[0] = int(Op.NONE)
    for rank, row in enumerate(rows):
        if row:
            matrix[:, rank, : len(row)] = np.array(row, dtype=np.int64).T
    kind, stage, microbatch = matrix
    return Program(
        kind,
        stage,
        microbatch,
        num_stages,
        num_microbatches,
        copies=copies,
        sequence_chunks=sequence_chunks,
        barriers=barriers,
    )


def placed(placement: Placement, pp: int, vpp: int) -> IntMatrix:
    """Virtual stage that is each rank's chunk 0, 1, ...; shape (rank, chunk).

    Source: stages are numbered along the way of a micro batch: chunk c begins with stage c pp and
    goes through all ranks, in a V from the last to the first where c is odd.
    """
    rank, chunk = np.arange(pp)[:, None], np.arange(vpp)[None, :]
    back = (chunk % 2 == 1) & (placement == "v")
    return np.asarray(chunk * pp + np.where(back, pp - 1 - rank, rank))

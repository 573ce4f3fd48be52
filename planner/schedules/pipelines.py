"""A pipeline as a user states it: its shape, and the durations of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import FloatColumn, FloatMatrix
from trainplan.costmodel.program import LARGEST_PROGRAM, Op, RelativeSeconds, Shape
from trainplan.costmodel.schedules import causal_shares
from trainplan.costmodel.timeline import StageSeconds, relative_seconds

LARGEST_SECONDS = 1e12
SMALLEST_SECONDS = 1e-12
"""Durations outside are a slip, and sums of them would lose all digits."""

LARGEST_UNITS = 10_000
"""Durations that are whole multiples of a unit, up to this sum, enter an order exactly."""
FRACTIONS = 1000
"""Digits behind the point that are looked at to find that unit."""


def require_duration(name: str, value: float) -> None:
    """Check one duration.

    Raises:
        SpecError: It is negative, not finite, or of absurd size.
    """
    if not (value == 0 or SMALLEST_SECONDS <= value <= LARGEST_SECONDS):  # so NaN is refused, too
        raise SpecError(
            f"{name} is {value:g}: a duration is 0, or lies between {SMALLEST_SECONDS:g} and "
            f"{LARGEST_SECONDS:g}"
        )


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Durations of one virtual stage's passes of one micro batch; any unit, the same for all."""

    forward: float
    input_grad: float
    weight_grad: float
    input_grad_frees_bytes: float = 0.0
    """Activations of one micro batch that only the input gradient needs."""
    weight_grad_frees_bytes: float = 0.0
    """Activations of one micro batch that are held until the end of the weight gradient."""

    def checked(self, where: str) -> StageTimes:
        """The durations, if they are durations.

        Raises:
            SpecError: One is negative, not finite, or of absurd size.
        """
        require_duration(f"{where}: forward", self.forward)
        require_duration(f"{where}: input_grad", self.input_grad)
        require_duration(f"{where}: weight_grad", self.weight_grad)
        return self


@dataclass(frozen=True, slots=True)
class Extras:
    """What some schedules need beyond the durations of whole passes."""

    sequence_chunks: int = 1
    attention_share: float = 0.0
    """Part of a forward pass that is attention, whose cost grows along a causal sequence."""
    vocab_forward: float = 0.0
    """Of one rank's share of the output layer."""
    vocab_backward: float = 0.0
    offload: float = 0.0
    """Copy of one pass' activations to the host, and of one back."""

    def checked(self) -> Extras:
        """The extras, if the durations among them are durations.

        Raises:
            SpecError: As of `StageTimes`.
        """
        require_duration("vocab_forward", self.vocab_forward)
        require_duration("vocab_backward", self.vocab_backward)
        require_duration("offload", self.offload)
        return self


def stage_seconds(stages: Sequence[StageTimes], extras: Extras) -> StageSeconds:
    """Seconds of every pass; a column for each stage, or for each chunk of each.

    A causal pass' attention has no weights: its backward work, twice the forward, is all in the
    input gradient, whose share of attention is therefore 2 s / (1 + s).
    Source: derived; two products forward, four backward (Dao, FlashAttention-2, arXiv:2307.08691,
    section 3.1, without the recomputed one).

    Raises:
        SpecError: A duration is negative, not finite or of absurd size, or all are 0.
    """
    for number, one in enumerate(stages):
        one.checked(f"stage {number}")
    columns = np.array([(s.forward, s.input_grad, s.weight_grad) for s in stages], dtype=np.float64)
    if not columns.any():
        raise SpecError("all durations are 0: state how long the passes take")
    k, share = extras.checked().sequence_chunks, extras.attention_share
    forward = _cut(columns[:, 0], causal_shares(k, share))
    sent = _cut(columns[:, 1], causal_shares(k, 2 * share / (1 + share)))
    weight = _cut(columns[:, 2], np.full(k, 1 / k))
    extra = {
        Op.VOCAB_FORWARD: extras.vocab_forward,
        Op.VOCAB_BACKWARD: extras.vocab_backward,
        Op.OFFLOAD: extras.offload,
        Op.RELOAD: extras.offload,
    }
    others = tuple(np.full(forward.shape, extra[op]) for op in Op if op > Op.WHOLE)
    return StageSeconds(forward, sent + weight, weight, others)


def freed_bytes(stages: Sequence[StageTimes]) -> tuple[tuple[float, float], ...]:
    """What the input and the weight gradient of every stage free; empty if nothing is stated."""
    pairs = tuple((one.input_grad_frees_bytes, one.weight_grad_frees_bytes) for one in stages)
    return pairs if any(map(any, pairs)) else ()


def _cut(seconds: FloatColumn, shares: FloatColumn) -> FloatMatrix:
    """Seconds of each chunk of each stage, one row.

    Source: the chunks of a stage share its seconds in the ratio of `shares`, which add up to one on
    every stage.
    """
    return np.asarray(np.outer(seconds, shares).reshape(1, -1))


def require_size(shape: Shape) -> Shape:
    """The shape, if its program is of a size to be built.

    Raises:
        SpecError: It has too many ops.
    """
    ops = 3 * shape.pp * shape.vpp * shape.num_microbatches * shape.sequence_chunks
    if ops > LARGEST_PROGRAM:
        raise SpecError(
            f"pp={shape.pp}, vpp={shape.vpp}, num_microbatches={shape.num_microbatches}, "
            f"sequence_chunks={shape.sequence_chunks} make up to {ops:,} ops, more than "
            f"{LARGEST_PROGRAM:,}: lower {_largest(shape)}"
        )
    return shape


def _largest(shape: Shape) -> str:
    """The size that is furthest from what is usual."""
    sizes = {
        "num_microbatches, beyond a few times pp it only repeats": shape.num_microbatches,
        "pp": shape.pp,
        "vpp": shape.vpp,
        "sequence_chunks": shape.sequence_chunks,
    }
    return max(sizes, key=lambda name: sizes[name])


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a schedule is wanted for."""

    shape: Shape
    seconds: StageSeconds
    """Of one candidate: a column for each virtual stage, or for each chunk of each."""
    p2p: float = 0.0
    splits_backward: bool = False
    """Cut every whole backward pass in its two gradients, one right after the other."""
    copied_chunks: int = 0
    """Virtual stages of each rank, the first ones, whose activations wait on the host."""
    frees_bytes: tuple[tuple[float, float], ...] = ()
    """Activations of every stage that its input and its weight gradient free, if stated."""

    def __post_init__(self) -> None:
        require_duration("p2p", self.p2p)

    @property
    def relative(self) -> RelativeSeconds:
        """Durations in whole units: exact where a common unit is large enough."""
        parts = self.seconds.forward, self.seconds.backward - self.seconds.weight
        means = [float(part.mean()) * FRACTIONS for part in (*parts, self.seconds.weight)]
        means.append(self.p2p * FRACTIONS)
        whole = [round(mean) for mean in means]
        unit = reduce(gcd, whole)
        exact = unit > 0 and all(abs(w - mean) < 1e-6 for w, mean in zip(whole, means, strict=True))
        if exact and sum(whole) <= LARGEST_UNITS * unit:
            return RelativeSeconds(*(value // unit for value in whole))
        return relative_seconds(self.seconds, np.array([self.p2p]))[0]

"""How long the sequences of a job are."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from trainplan.costmodel.spec import Spec

Packing = Literal["none", "greedy", "balanced"]
"""Each sequence padded to a row; rows filled by the first sequence that fits; rows filled, and run
side by side, so that their attention work is alike."""
LONGEST_MEAN, WIDEST_SIGMA = 1e9, 5.0
"""Of a lognormal distribution that is taken."""


class Lognormal(Spec):
    """Lengths whose logarithm is normal; those above a row are cut to it."""

    mean: float = Field(ge=1, le=LONGEST_MEAN)
    """Tokens, before any is cut."""
    sigma: float = Field(ge=0, le=WIDEST_SIGMA)
    """Standard deviation of the logarithm."""


class LengthSpec(Spec):
    """A histogram of sequence lengths, or a distribution."""

    counts: tuple[tuple[PositiveInt, NonNegativeFloat], ...] = ()
    """Tokens of a sequence, and how many such sequences there are."""
    lognormal: Lognormal | None = None
    """Null: `counts` say."""

    @model_validator(mode="after")
    def _has_mass(self) -> Self:
        if bool(self.counts) == (self.lognormal is not None):
            raise ValueError("give counts of lengths or a lognormal distribution, one of both")
        if self.counts and not sum(count for _, count in self.counts) > 0:
            raise ValueError("all counts are 0: give at least one length a count above 0")
        return self

    @property
    def longest(self) -> int:
        """Of a histogram, tokens of the longest sequence there is; 0 of a distribution."""
        return max((length for length, count in self.counts if count > 0), default=0)

"""Numbers that documents state, each with the largest that is no slip; text without surprises."""

from typing import Annotated

from pydantic import AfterValidator, Field

LARGEST_SIZE = 1 << 30
"""Of a batch and of a sequence."""
Degree = Annotated[int, Field(gt=0, le=1 << 20)]
"""Ranks, GPUs, nodes or stages: as many as GPUs are planned."""
Whole = Annotated[int, Field(gt=0, le=LARGEST_SIZE)]
"""Sequences, tokens of a sequence, layers."""
WholeOrZero = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]
Amount = Annotated[float, Field(gt=0, le=1e12)]
"""GB/s, GiB, TB, seconds: above zero."""
AmountOrZero = Annotated[float, Field(ge=0, le=1e12)]
"""The same, microseconds and prices, or none."""


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


OneLine = Annotated[str, AfterValidator(_escaped)]
"""Text whose characters cannot steer the terminal that shows it."""

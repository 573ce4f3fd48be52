"""Widths of the intervals around a step time."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveFloat

from trainplan.costmodel.spec.base import Spec


class IntervalWidth(Spec):
    """What published runs of one regime say."""

    half_width: PositiveFloat
    """In log units: the interval is step * exp(+- half_width)."""
    runs: NonNegativeInt
    """Runs it was taken from."""


class Intervals(Spec):
    """Contents of `intervals.toml`."""

    seen: tuple[str, ...]
    """GPU, precision and runtime of the runs the constants were fitted on."""
    comparison: IntervalWidth
    """Of the ratio of two step times of one job in two layouts."""
    regimes: dict[str, IntervalWidth]

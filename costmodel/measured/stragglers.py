"""How far the slowest GPU falls behind, by the measured spread of all that were loaded at once."""

from collections.abc import Sequence
from math import log2
from statistics import NormalDist, fmean, stdev

from trainplan.costmodel.profiles import Point, PowerPoint

LEAST_GPUS = 8
"""Fewer say too little: the standard deviation of 8 normal numbers is off by a quarter. Source:
derived, 1 / sqrt(2 (8 - 1)); one node, from which on the constant counts."""


def speed_spread(points: Sequence[Point]) -> float | None:
    """Standard deviation of the seconds of a product on GPUs loaded at once, over their mean.

    Null where fewer than `LEAST_GPUS` were. Source: derived; the points of `plan profile --only
    power`, one a GPU.
    """
    seconds = {
        one.gpu: one.seconds_per_call
        for one in points
        if isinstance(one, PowerPoint) and one.state == "product" and one.gpus > 1
    }
    known = [value for value in seconds.values() if value]
    return stdev(known) / fmean(known) if len(known) >= LEAST_GPUS else None


def largest_of(count: int) -> float:
    """Expected largest of so many standard normal numbers.

    Source: Blom, Statistical Estimates and Transformed Beta-Variables, 1958: quantile of
    (n - 3/8) / (n + 1/4).
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def straggler_per_doubling(spread: float, num_gpus: int) -> float:
    """Slowdown for every doubling beyond 8 of GPUs whose speeds have this spread.

    Source: derived; a step waits for the slowest, so n GPUs take spread x `largest_of(n)` longer
    than the mean one, of which what 8 take is in all figures of one node.
    """
    count = max(num_gpus, 2 * LEAST_GPUS)
    behind = spread * (largest_of(count) - largest_of(LEAST_GPUS))
    return behind / log2(count / LEAST_GPUS)

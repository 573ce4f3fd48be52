"""How well a median is known, and what is wrong with the samples it is of.

Source: Le Boudec, Performance Evaluation of Computer and Communication Systems, EPFL Press 2010,
section 2.2: order statistics bound a quantile with no assumption about the distribution.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import comb, inf, isfinite
from statistics import median, multimode

from trainplan.costmodel.profiles import Flag, Timing
from trainplan.costmodel.residuals import MAD_OF_NORMAL
from trainplan.profiler.errors import ProfilerError

CONFIDENCE = 0.95
FEWEST_REPEATS = 5
"""The extremes of five hold the median with 94 %, of six with 97 %.

Source: derived. Both bounds miss it when all samples lie on one side: 2 * 2**-5 = 6 %.
"""
FAR_DEVIATIONS = 5.0
NOISY_FRACTION = 0.05
DRIFT_FRACTION = 0.05
RESOLUTION_FRACTION = 0.005
"""Differences below it say nothing: clocks have a resolution.

Source: derived. CUDA events resolve 0.5 us, 0.005 % of a block of 10 ms; this is a hundred of them.
"""
PATIENCE = 10.0
"""A call so slow that its time is up this many times over is not repeated `FEWEST_REPEATS` times.

Source: derived. Quick on the CPU: a call of one second is timed twice, one of 0.3 s five times.
"""


@dataclass(frozen=True, slots=True)
class Repeat:
    """One sample, agreed upon by all ranks that took part in it."""

    seconds: float
    """Of one call."""
    elapsed_seconds: float
    """Since the first sample began."""
    slowest_rank: int | None = None
    host_seconds: float = 0.0
    """Of Python, to queue one call on a GPU."""
    held_back: bool = False
    """The GPU began only when all calls were queued."""


@dataclass(frozen=True, slots=True)
class Effort:
    """When to stop repeating."""

    half_width_fraction: float
    """Goal for half the confidence interval of the median, over the median."""
    cap_seconds: float
    most_repeats: int


def repeat_until_known(repeat: Callable[[], Repeat], effort: Effort) -> list[Repeat]:
    """Samples until the median is known or the time is up; ranks with equal samples stop alike."""
    repeats: list[Repeat] = []
    while not _enough(repeats, effort):
        repeats.append(repeat())
    return repeats


def _enough(repeats: Sequence[Repeat], effort: Effort) -> bool:
    if not repeats:
        return False
    elapsed = repeats[-1].elapsed_seconds
    if len(repeats) < FEWEST_REPEATS:
        return elapsed > PATIENCE * effort.cap_seconds
    if len(repeats) >= effort.most_repeats or elapsed > effort.cap_seconds:
        return True
    return half_width_fraction([r.seconds for r in repeats]) < effort.half_width_fraction


def timing_of(
    samples: Sequence[float],
    slowest_ranks: Sequence[int] = (),
    host_seconds: Sequence[float] = (),
    *,
    with_host: bool = False,
) -> Timing:
    """Median of samples in seconds, its uncertainty, and what is wrong with the samples.

    `host_seconds` are those of Python, `with_host` says that a GPU may have waited for it.

    Raises:
        ProfilerError: No sample, or one that is zero, negative or not finite.
    """
    if not samples:
        raise ProfilerError("no sample: a call was never timed; this is a fault of the clock")
    for sample in samples:
        if not isfinite(sample) or sample <= 0:
            raise ProfilerError(
                f"a call took {sample} s by this machine's clock, which cannot be: "
                "time more calls at once, or look for a driver whose timers are broken"
            )
    return Timing(
        seconds=median(samples),
        spread_fraction=_deviation(samples) / median(samples),
        half_width_fraction=half_width_fraction(samples),
        repeats=len(samples),
        flags=(*_flags(samples), *(("with_host",) if with_host else ())),
        slowest_rank=multimode(slowest_ranks)[0] if slowest_ranks else None,
        host_seconds=median(host_seconds) if host_seconds else None,
    )


def half_width_fraction(samples: Sequence[float]) -> float:
    """Half the 95 % confidence interval of the median, over the median."""
    ordered, outside, middle = sorted(samples), _outside(len(samples)), median(samples)
    return (ordered[-1 - outside] - ordered[outside]) / 2 / middle if middle > 0 else inf


def _outside(count: int) -> int:
    """Samples to leave out at either end of `count` for an interval that holds the median.

    Source: Le Boudec, section 2.2.2: samples below the median are binomial with p = 1/2. The
    interval from the k-th to the k-th last holds it but for 2 * P(fewer than k below).
    """
    below, left_out = 1, 0
    while 2 * below <= (1 - CONFIDENCE) * 2**count:
        left_out += 1
        below += comb(count, left_out)
    return max(0, left_out - 1)


def _deviation(samples: Sequence[float]) -> float:
    """Scaled median absolute deviation in seconds."""
    middle = median(samples)
    return MAD_OF_NORMAL * median(abs(sample - middle) for sample in samples)


def _flags(samples: Sequence[float]) -> Iterator[Flag]:
    middle = median(samples)
    if half_width_fraction(samples) > NOISY_FRACTION:
        yield "noisy"
    if abs(drift(samples) - 1) > max(DRIFT_FRACTION, _deviation(samples) / middle):
        yield "drift"
    far = FAR_DEVIATIONS * max(_deviation(samples), RESOLUTION_FRACTION * middle)
    if any(abs(sample - middle) > far for sample in samples):
        yield "outliers"


def drift(samples: Sequence[float]) -> float:
    """Median of the second half over that of the first; 1 for fewer than four samples."""
    half = len(samples) // 2
    return median(samples[-half:]) / median(samples[:half]) if half > 1 else 1.0

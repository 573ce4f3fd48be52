"""How wide the intervals have to be, and whether they hold as many steps as they promise."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from trainplan.costmodel.documents import IntervalEnds, Intervals, IntervalWidth, Peaks
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.uncertainty import LEVEL, UNMEASURED, calibrated_regime, width_factor
from trainplan.costmodel.validate.one_step import errors_after_one_step
from trainplan.costmodel.validate.ranking import jobs_of
from trainplan.costmodel.validate.residuals import (
    Miss,
    Residual,
    ends,
    ends_of,
    regimes_of,
    weights_of,
)
from trainplan.costmodel.validate.stand_ins import assumed_misses, stand_in_misses
from trainplan.costmodel.validate.steps import POOLED, TimedRow, pooled

TAILS = tuple(share / 200 for share in range(20, 0, -1))
"""Shares that `tail_of` tries, from that of runs of the same sources on."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Where the measured steps of a group of rows lie."""

    name: str
    """`all`, or the regime."""
    n: int
    """Rows."""
    inside_fraction: float
    """Share inside their interval; the others are faster or slower."""
    below_fraction: float
    """Faster than its lower end."""
    above_fraction: float
    """Slower than its upper end."""


def intervals(rows: Sequence[TimedRow], residuals: Sequence[Residual], peaks: Peaks) -> Intervals:
    """Ends of every regime: of runs left out of fits, of stand-ins, and after a measured step.

    They leave out `tail_of` the runs on either side; stand-ins and assumptions, which hold sources
    left out anyway, `TAIL`.
    """
    known, tail = [one.row for one in residuals], tail_of(residuals)
    unseen = ends_of("unseen", residuals, tail)
    worse = nested((unseen, ends(stand_in_misses(known)), ends(assumed_misses(known))))
    regimes = regimes_of(residuals, tail) | dict(zip(UNMEASURED, worse, strict=True))
    libraries = {name: one.library for name, one in RUNTIMES.items() if one.library}
    return Intervals(
        comparison=comparison_width(rows),
        tail=tail,
        left_out=round(of_sources(residuals, tail)[0].inside_fraction, 3),
        libraries=libraries,
        regimes=regimes | _calibrated(residuals, tail),
        peaks=peaks,
    )


def tail_of(residuals: Sequence[Residual]) -> float:
    """Share of the weight of runs beyond either end of an interval, so that it holds for strangers.

    The largest with which `LEVEL` of the runs of sources are inside intervals that had not seen the
    source. Errors of a source go together, so quantiles of some sources hold fewer runs of another
    than of themselves; whoever asks is another. Source: derived; cross-validation by groups (M.
    Stone, J. Royal Statistical Society B 36, 1974), one number of all runs.
    """

    def held(tail: float) -> bool:
        return of_sources(residuals, tail)[0].inside_fraction >= LEVEL

    return TAILS[min(bisect_left(TAILS, x=True, key=held), len(TAILS) - 1)]


def of_sources(residuals: Sequence[Residual], tail: float) -> tuple[Coverage, ...]:
    """Runs of every source in intervals that had not seen it: all of them, then by source."""
    return left_out_coverage(
        residuals, lambda one: one.source, lambda one: one.without_source, tail=tail
    )


def nested(regimes: Iterable[IntervalEnds]) -> Iterator[IntervalEnds]:
    """Each with ends at least as far out as those before it: worse evidence is never narrower."""
    low = high = 0.0
    for one in regimes:
        low, high = min(low, one.low), max(high, one.high)
        yield one.model_copy(update={"low": low, "high": high})


def comparison_width(rows: Iterable[TimedRow]) -> IntervalWidth:
    """Width of the error of the ratio of two step times, of layouts one doubling apart."""
    errors = [
        abs(_miss(one) - _miss(other)) / width_factor(one.layout, other.layout)
        for group in jobs_of(rows)
        for one, other in combinations(group, 2)
        if one.layout != other.layout
    ]
    width = round(float(np.quantile(errors, LEVEL)), 3)
    return IntervalWidth(half_width=width, runs=len(errors))


def _miss(row: TimedRow) -> float:
    return math.log(row.predicted_s / row.measured_s)


def _calibrated(residuals: Sequence[Residual], tail: float) -> dict[str, IntervalEnds]:
    """Ends after one measured step of another layout, under fits that had not seen the source."""
    rows = [one.left_out for one in residuals]
    shares = dict(zip((row.run.id for row in rows), weights_of(rows), strict=True))
    misses: dict[str, list[Miss]] = {}
    runs: dict[str, set[str]] = {}
    for row, after in errors_after_one_step(rows):
        name, run = calibrated_regime(row.job), row.run
        weight = shares[run.id] / len(after)
        each = [Miss(run.source_group, -math.log1p(error), weight) for error in after]
        misses.setdefault(name, []).extend(each)
        runs.setdefault(name, set()).add(run.id)
    return {
        name: ends(group, (), tail).model_copy(update={"runs": len(runs[name])})
        for name, group in misses.items()
    }


def coverage(rows: Sequence[TimedRow]) -> Coverage | None:
    """Over all rows; null where there are none."""
    return _coverage("all", [_side(row) for row in rows]) if rows else None


def coverage_by_regime(rows: Iterable[TimedRow]) -> tuple[Coverage, ...]:
    """Over the rows of every regime, the largest first; small regimes as one."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row.estimate.uncertainty.regime, []).append(_side(row))
    return by_group(groups)


def by_group(groups: dict[str, list[float]]) -> tuple[Coverage, ...]:
    """Of sides by group, the largest first; groups of fewer than eight rows as one, at the end."""
    found = [_coverage(name, sides) for name, sides in pooled(groups.items()).items()]
    return tuple(sorted(found, key=lambda one: (one.name == POOLED, -one.n, one.name)))


def left_out_coverage(
    residuals: Sequence[Residual],
    fold: Callable[[Residual], str],
    miss: Callable[[Residual], Miss],
    group: Callable[[Residual], str] | None = None,
    *,
    tail: float,
) -> tuple[Coverage, ...]:
    """Over rows left out of constants and of ends alike: all of them, then by group.

    `fold` names what is left out together, `miss` is the error of a fit that had not seen it;
    groups are what was left out, where none are named.
    """
    group = group or fold
    groups: dict[str, list[float]] = {}
    every: list[float] = []
    for name in sorted({fold(one) for one in residuals}):
        left = [one for one in residuals if fold(one) == name]
        rest = [one for one in residuals if fold(one) != name]
        known = {regime: ends_of(regime, rest, tail) for regime in {one.regime for one in left}}
        for one in left:
            at = known[one.regime]
            every.append(_outside(miss(one).value, at.low, at.high))
            groups.setdefault(group(one), []).append(every[-1])
    return (_coverage("all", every), *by_group(groups))


def _coverage(name: str, sides: Sequence[float]) -> Coverage:
    below, above = fmean(side < 0 for side in sides), fmean(side > 0 for side in sides)
    return Coverage(name, len(sides), 1 - below - above, below, above)


def _side(row: TimedRow) -> float:
    interval = row.estimate.uncertainty
    return _outside(row.measured_s, interval.step_time_low_s, interval.step_time_high_s)


def _outside(value: float, low: float, high: float) -> float:
    """Below zero: under the interval; above: over it."""
    return min(value - low, 0.0) + max(value - high, 0.0)

"""How wide the intervals have to be, and whether they hold as many steps as they promise."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import get_args

import numpy as np

from trainplan.costmodel.documents import Intervals, IntervalWidth, Peaks
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.uncertainty import (
    LEVEL,
    UNMEASURED,
    Kind,
    calibrated_regime,
    width_factor,
)
from trainplan.costmodel.validate.one_step import errors_after_one_step
from trainplan.costmodel.validate.ranking import jobs_of
from trainplan.costmodel.validate.residuals import (
    Miss,
    Residual,
    Scale,
    Scales,
    miss_of,
    quantile,
    scale_of,
    source_weights,
    weights_of,
    width,
    width_of,
)
from trainplan.costmodel.validate.stand_ins import assumed_misses, stand_in_misses
from trainplan.costmodel.validate.steps import POOLED, TimedRow, pooled


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


def intervals(residuals: Sequence[Residual], peaks: Peaks) -> Intervals:
    """Widths of every regime: of sources left out of fits, of stand-ins, and after a measured step.

    All are widened the same, until intervals that had not seen a source hold `LEVEL` of its runs.
    """
    widened, scales = widening(residuals), Scales(residuals)
    regimes, known = scales.widths(widened), [one.row for one in residuals]
    misses = [one.miss for one in residuals], stand_in_misses(known), assumed_misses(known)
    for kind in get_args(Kind):
        wide = _unmeasured(misses, scales.of_kind(kind), widened)
        regimes |= {f"{name} {kind}": one for name, one in zip(UNMEASURED, wide, strict=True)}
    libraries = {name: one.library for name, one in RUNTIMES.items() if one.library}
    return Intervals(
        comparison=comparison_width(one.left_out for one in residuals),
        widened=widened,
        left_out=round(of_sources(residuals, widened)[0].inside_fraction, 3),
        libraries=libraries,
        regimes=regimes | _calibrated(residuals, widened),
        peaks=peaks,
    )


def _unmeasured(
    misses: Sequence[Sequence[Miss]], scale: Scale, widened: float
) -> Iterator[IntervalWidth]:
    """Where no run is known: with fits of the GPU, of another, or none; each as wide as the last.

    Runs priced by stand-ins and assumptions are of no source that was left out: their errors are.
    """
    most = 0.0
    for group in misses:
        one = width(Scale(scale_of(group).log) if most else scale, widened, group)
        most = max(most, one.half_width)
        yield one.model_copy(update={"half_width": most})


def widening(residuals: Sequence[Residual]) -> float:
    """Factor on all widths, so that they hold `LEVEL` of the runs of sources that were left out.

    Source: derived; cross-validation by groups (M. Stone, J. Royal Statistical Society B 36, 1974),
    one number of all runs. A normal variable would need 1; below it, as here, sources err less
    often by much than the few far off of them show.
    """
    pairs = list(_without(residuals))
    return round(held([replace(one.miss, value=one.miss.value / half) for one, half in pairs]), 3)


def held(misses: Sequence[Miss]) -> float:
    """Size of errors that holds `LEVEL` of those of one more source; sources weigh the same.

    Source: the quantile at `LEVEL` * (1 + 1 / n) of n groups that are exchangeable with the next
    (Dunn, Wasserman and Ramdas, J. American Statistical Association 118, 2023).
    """
    weights = source_weights(misses)
    at = min(LEVEL * (1 + 1 / weights.sum()), 1.0)
    return quantile(np.abs([one.value for one in misses]), weights, at)


def of_sources(
    residuals: Sequence[Residual],
    widened: float,
    group: Callable[[Residual], str] = lambda one: one.row.run.source_group,
) -> tuple[Coverage, ...]:
    """Runs of every source in intervals that had not seen it: all of them, then by group."""
    groups: dict[str, list[float]] = {}
    for one, half in _without(residuals):
        side = _outside(one.miss.value, -widened * half, widened * half)
        groups.setdefault(group(one), []).append(side)
    every = [side for sides in groups.values() for side in sides]
    return (_coverage("all", every), *by_group(groups))


def _without(residuals: Sequence[Residual]) -> Iterator[tuple[Residual, float]]:
    """Every run, with the half-width of its regime before it is widened, its source left out."""
    for source in sorted({one.miss.source for one in residuals}):
        scales = Scales(one for one in residuals if one.miss.source != source)
        left = [one for one in residuals if one.miss.source == source]
        known = {name: scales.of_regime(name) for name in {one.regime for one in left}}
        yield from ((one, known[one.regime].half_width) for one in left)


def comparison_width(rows: Iterable[TimedRow]) -> IntervalWidth:
    """Width of the error of the ratio of two step times, of layouts that differ by one doubling.

    Pairs are of one source, whose machine and software are in both steps, and sources weigh the
    same.
    """
    errors = [
        Miss(source, (miss_of(one) - miss_of(other)) / width_factor(one.layout, other.layout), 1)
        for group in jobs_of(rows)
        for one, other in combinations(group, 2)
        if one.layout != other.layout and (source := one.run.source_group) == other.run.source_group
    ]
    return width_of(errors, held(errors))


def _calibrated(residuals: Sequence[Residual], widened: float) -> dict[str, IntervalWidth]:
    """After one measured step of another layout, under fits that had not seen the source."""
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
        name: width(Scale(scale_of(group).log), widened, group).model_copy(
            update={"runs": len(runs[name])}
        )
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


def _coverage(name: str, sides: Sequence[float]) -> Coverage:
    below, above = fmean(side < 0 for side in sides), fmean(side > 0 for side in sides)
    return Coverage(name, len(sides), 1 - below - above, below, above)


def _side(row: TimedRow) -> float:
    interval = row.estimate.uncertainty
    return _outside(row.measured_s, interval.step_time_low_s, interval.step_time_high_s)


def _outside(value: float, low: float, high: float) -> float:
    """Below zero: under the interval; above: over it."""
    return min(value - low, 0.0) + max(value - high, 0.0)

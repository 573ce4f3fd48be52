"""How wide the intervals have to be, and whether they hold as many steps as they promise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from trainplan.costmodel.machine.uncertainty import LEVEL, Regime, kind_of_run, run_key
from trainplan.costmodel.spec.evidence.constants import Intervals, IntervalWidth
from trainplan.costmodel.validate.comparison import comparison_width
from trainplan.costmodel.validate.one_step import errors_after_one_step
from trainplan.costmodel.validate.steps import TimedRow

FITTED_LEVEL = 0.84
"""Quantile that makes an interval where constants were fitted on the very runs.

Source: assumed; more than the 0.80 it stands for, because a fit takes a part of its errors away.
"""
LEAST_RUNS = 8
"""A regime with fewer runs takes the width of all. Source: assumed."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of a group of rows whose measured step lies in its interval."""

    name: str
    n: int
    inside_fraction: float


def intervals(rows: Sequence[TimedRow], unseen: Mapping[Regime, IntervalWidth]) -> Intervals:
    """Widths of every regime from the rows the constants were fitted on.

    `unseen` are those of runs that a fit had not seen.
    """
    groups: dict[Regime, list[float]] = {}
    for row in rows:
        estimate = row.estimate
        kind = kind_of_run(row.job, estimate.terms.host / estimate.step_time_s)
        groups.setdefault(kind, []).append(abs(math.log(row.predicted_s / row.measured_s)))
    every = [error for group in groups.values() for error in group]
    widths = {
        kind: IntervalWidth(
            half_width=round(float(np.quantile(_enough(group, every), FITTED_LEVEL)), 3),
            runs=len(group),
        )
        for kind, group in groups.items()
    }
    widths |= _calibrated(rows)
    seen = tuple(sorted({key for row in rows for key in run_key(row.job)}))
    return Intervals(seen=seen, comparison=comparison_width(rows), regimes={**widths, **unseen})


def _calibrated(rows: Sequence[TimedRow]) -> dict[Regime, IntervalWidth]:
    """Widths after one measured step of another layout: these errors were never fitted."""
    errors: dict[Regime, list[tuple[float, float]]] = {}
    for row, after in errors_after_one_step(rows):
        kind: Regime = "calibrated_mixture_of_experts" if row.job.model.moe else "calibrated_dense"
        each = [(abs(math.log1p(error)), 1 / len(after)) for error in after]
        errors.setdefault(kind, []).extend(each)
    return {kind: _weighted(pairs) for kind, pairs in errors.items()}


def _weighted(pairs: Sequence[tuple[float, float]]) -> IntervalWidth:
    """Width that holds the share of the weight: every run weighs 1, whatever its partners."""
    sizes, weights = np.array(sorted(pairs)).T
    held = np.cumsum(weights) / weights.sum()
    width = sizes[int(np.searchsorted(held, LEVEL))]
    return IntervalWidth(half_width=round(float(width), 3), runs=round(float(weights.sum())))


def _enough(group: Sequence[float], every: Sequence[float]) -> Sequence[float]:
    return group if len(group) >= LEAST_RUNS else every


def coverage(rows: Sequence[TimedRow]) -> Coverage | None:
    """Over all rows; null where there are none."""
    return _coverage("all", rows) if rows else None


def coverage_by_regime(rows: Iterable[TimedRow]) -> tuple[Coverage, ...]:
    """Over the rows of every regime."""
    groups: dict[str, list[TimedRow]] = {}
    for row in rows:
        groups.setdefault(regime(row), []).append(row)
    return tuple(_coverage(name, group) for name, group in sorted(groups.items()))


def regime(row: TimedRow) -> str:
    """Kind of run whose residuals gave the interval."""
    return row.estimate.uncertainty.regime


def _coverage(name: str, rows: Sequence[TimedRow]) -> Coverage:
    return Coverage(name, len(rows), fmean(map(_is_inside, rows)))


def _is_inside(row: TimedRow) -> bool:
    interval = row.estimate.uncertainty
    return interval.step_time_low_s <= row.measured_s <= interval.step_time_high_s

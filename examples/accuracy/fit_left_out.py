"""Errors of every source, fitted and left out of the fit."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from fit_one_step import one_step_left_out
from fit_parameters import constants_at
from fit_predict import residuals
from fit_problem import Problem
from fit_rows import FloatColumn, Row

from trainplan.costmodel import catalog
from trainplan.costmodel.machine.uncertainty import LEVEL


def per_source(rows: Sequence[Row], residual: FloatColumn) -> dict[str, float]:
    """Median absolute error of every source, in per cent."""
    errors: dict[str, list[float]] = defaultdict(list)
    for row, value in zip(rows, residual, strict=True):
        errors[row.source].append(abs(math.exp(value) - 1) * 100)
    return {name: float(np.median(values)) for name, values in sorted(errors.items())}


def score(rows: Sequence[Row], residual: FloatColumn) -> float:
    """Mean of the per-source medians, in per cent."""
    return float(np.mean(list(per_source(rows, residual).values())))


def leave_one_out(
    problem: Problem, names: Sequence[str], say: Callable[[str], None]
) -> dict[str, object]:
    """Every source predicted by a fit that never saw it; `say` reports each."""
    rows, sources = problem.rows, sorted({row.source for row in problem.rows})
    result: dict[str, dict[str, float]] = {}
    misses: list[tuple[str, str, float]] = []
    values: dict[str, list[float]] = defaultdict(list)
    off = np.zeros(len(rows))
    for source in sources:
        keep = np.array([row.source != source for row in rows])
        theta = dict(zip(names, problem.solve(keep), strict=True))
        left = [row for row in rows if row.source == source]
        residual = residuals(left, theta, source)
        off[~keep] = residual
        result[source] = {"n": len(left), "median_error": per_source(left, residual)[source] / 100}
        for row, miss in zip(left, residual, strict=True):
            kind = "unseen_mixture_of_experts" if row.case.job.model.moe else "unseen_dense"
            misses.append((source, kind, abs(miss)))
        say(f"without {source:10} {100 * result[source]['median_error']:6.2f} %")
        fixed = constants_at(theta)
        for name in catalog.fitted_constants():
            values[name].append(getattr(fixed, name))
    mean = float(np.mean([one["median_error"] for one in result.values()]))
    at = constants_at(dict(zip(names, problem.theta, strict=True)))
    return {
        "sources": result,
        "mean_of_medians": mean,
        "intervals": {
            kind: {
                "half_width": _width(misses, kind, None),
                "runs": sum(k == kind for _, k, _ in misses),
            }
            for kind in sorted({kind for _, kind, _ in misses})
        },
        "one_step": one_step_left_out(rows, off),
        "coverage": {source: _coverage(misses, source) for source in sources},
        "constants": {
            name: {"value": getattr(at, name), "min": min(some), "max": max(some)}
            for name, some in values.items()
        },
    }


def _width(misses: Sequence[tuple[str, str, float]], kind: str, without: str | None) -> float:
    """Width that holds LEVEL of the residuals of sources left out, each source weighing alike."""
    some = [(miss, source) for source, k, miss in misses if k == kind and source != without]
    counts = Counter(source for _, source in some)
    ordered = sorted(some)
    weights = np.array([1 / counts[source] for _, source in ordered])
    held = np.cumsum(weights) / weights.sum()
    return round(ordered[int(np.searchsorted(held, LEVEL))][0], 3)


def _coverage(misses: Sequence[tuple[str, str, float]], source: str) -> float:
    """Share of a source's runs inside the width that the other sources give."""
    own = [(kind, miss) for name, kind, miss in misses if name == source]
    return round(sum(miss <= _width(misses, kind, source) for kind, miss in own) / len(own), 4)

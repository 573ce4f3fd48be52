"""Errors of every source, fitted and left out of the fit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from fit_one_step import one_step_left_out
from fit_parameters import spreads_without, value_of
from fit_predict import residuals
from fit_problem import Problem
from fit_rows import FloatColumn, Row

LEAST_LEARNT = 0.1
"""Numbers of which the runs say less rest on their priors. Source: assumed."""


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
    """Every source predicted by a fit that never saw it; `say` reports each.

    What its authors measured of kernels is forgotten, too. `residuals` are ln(predicted / measured)
    of every run by its id; `fitted` counts numbers, runs and what the runs say of the numbers.
    """
    rows, sources = problem.rows, sorted({row.source for row in problem.rows})
    result: dict[str, dict[str, float]] = {}
    misses: dict[str, float] = {}
    without: dict[str, Fitted] = {}
    off = np.zeros(len(rows))
    for source in sources:
        without[source] = _fitted(problem, names, source)
        left = [row for row in rows if row.source == source]
        residual = residuals(left, without[source].theta, source)
        off[[row.source == source for row in rows]] = residual
        result[source] = {"n": len(left), "median_error": per_source(left, residual)[source] / 100}
        for row, miss in zip(left, residual, strict=True):
            misses[row.run.id] = round(float(miss), 5)
        say(f"without {source:10} {100 * result[source]['median_error']:6.2f} %")
    whole = _fitted(problem, names, None)
    return {
        "sources": result,
        "mean_of_medians": float(np.mean([one["median_error"] for one in result.values()])),
        "residuals": misses,
        "one_step": one_step_left_out(rows, off),
        "fitted": {
            "numbers": len(names),
            "effective": round(sum(whole.learnt.values()), 1),
            "runs": len(rows),
            "layouts": len({row.key for row in rows}),
        },
        "constants": {
            parameter: _number(parameter, float(spread), whole, without)
            for parameter, spread in zip(names, problem.spreads, strict=True)
        },
    }


@dataclass(frozen=True)
class Fitted:
    """Most probable parameters, and what the runs say of each."""

    theta: Mapping[str, float]
    learnt: Mapping[str, float]


def _fitted(problem: Problem, names: Sequence[str], left_out: str | None) -> Fitted:
    """Of all sources, or of all but one."""
    keep = np.array([row.source != left_out for row in problem.rows])
    theta = problem.theta
    if left_out:
        spreads = np.array(spreads_without(names, list(problem.spreads), left_out))
        theta = replace(problem, spreads=spreads).solve(keep, largest=math.inf)
    learnt = problem.learnt(keep)
    return Fitted(dict(zip(names, theta, strict=True)), dict(zip(names, learnt, strict=True)))


def _number(
    name: str, spread: float, whole: Fitted, without: Mapping[str, Fitted]
) -> dict[str, object]:
    """A fitted number, how far it moves, and on whom it rests.

    `moved_by` names the sources without which it is half its spread away, or more, `rests_on` those
    without which less than half of what is learnt of it is left.
    """
    values = [value_of(name, one.theta) for one in without.values()]
    learnt = whole.learnt[name]
    return {
        "value": value_of(name, whole.theta),
        "min": min(values),
        "max": max(values),
        "learnt": round(learnt, 3),
        "moved_by": [
            source
            for source, one in without.items()
            if abs(one.theta[name] - whole.theta[name]) > spread / 2
        ],
        "rests_on": [
            source
            for source, one in without.items()
            if learnt >= LEAST_LEARNT and one.learnt[name] < learnt / 2
        ],
    }

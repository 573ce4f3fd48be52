"""The most probable scalars of a machine, from step times alone.

    predicted = step(inter_node_bandwidth) / speed + fixed_overhead_seconds

Residuals of the logarithm count as Huber does, so one odd run among several hardly moves the
scalars. A small deviation is believed in part, because the model itself is off by that much from
layout to layout; a large one is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.layouts import BoolColumn, FloatColumn
from trainplan.costmodel.spec.evidence.calibration import Scalars

NOISE = 0.08
"""Spread of log(measured / predicted) between layouts of one machine.

Source: measured; spread inside groups of published runs of one GPU, precision, runtime and source,
0.02 to 0.14. Of 0.04, 0.08 and 0.12 the middle one predicts layouts that were left out best.
"""
SPEED_SPREAD = 0.06
"""Half of all machines are within this of the catalog, in log units; wide tails (Cauchy).

Source: measured; medians of the same groups, most within 0.06 and some beyond 0.4.
"""
INTER_NODE_SPREAD = 0.3
"""Standard deviation in log units.

Source: assumed; published runs reach 0.8 to 1.0 of the datasheet, oversubscribed networks a half.
"""
OVERHEAD_SPREAD_SECONDS = 0.2
"""Standard deviation. Source: assumed; data loading, logging and host work between steps."""
LEAST_LEARNT = 0.5
"""A scalar is identified when the runs halve its spread. Source: assumed."""
LEAST_LAYOUTS = 3
"""Layouts it takes to fit more than the speed.

Source: bandwidth and fixed seconds are two scalars beside the speed, which two runs fit exactly; a
third one is the first that tests them.
"""
TextColumn = NDArray[np.str_]
NETWORK_FACTORS = np.exp2(np.linspace(-3, 2, 11))
"""Bandwidths each run is priced at; in between its logarithm is interpolated."""
ITERATIONS = 100
SPEED, INTER_NODE, OVERHEAD = range(3)


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of several runs."""

    measured: FloatColumn
    """Seconds by run."""
    log_priced: FloatColumn
    """Logarithm of predicted seconds by run and `NETWORK_FACTORS`."""

    def take(self, rows: BoolColumn) -> Steps:
        """Some of the runs."""
        return Steps(self.measured[rows], self.log_priced[rows])

    def log_predicted(self, theta: FloatColumn) -> FloatColumn:
        """Logarithm of the step times under (log speed, log bandwidth, overhead).

        Source: the formula at the head of this file.
        """
        place = np.interp(theta[INTER_NODE], _LOG_FACTORS, np.arange(len(_LOG_FACTORS)))
        below = min(int(place), len(_LOG_FACTORS) - 2)
        low, high = self.log_priced[:, below], self.log_priced[:, below + 1]
        network = low + (place - below) * (high - low)
        seconds: FloatColumn = np.exp(network - theta[SPEED]) + theta[OVERHEAD]
        return np.log(seconds)


_LOG_FACTORS = np.log(NETWORK_FACTORS)


@dataclass(frozen=True, slots=True)
class Fit:
    """Log speed, log bandwidth and overhead, with their spreads."""

    theta: FloatColumn
    spread: FloatColumn
    free: BoolColumn

    @property
    def scalars(self) -> Scalars:
        """The values."""
        speed, bandwidth = np.exp(self.theta[:2])
        return Scalars(
            speed=float(speed),
            inter_node_bandwidth=float(bandwidth),
            fixed_overhead_seconds=float(self.theta[OVERHEAD]),
        )


_PRIOR = np.array([SPEED_SPREAD, INTER_NODE_SPREAD, OVERHEAD_SPREAD_SECONDS])


def speed_from_one_step(measured: float, predicted: float) -> float:
    """Most probable speed of a machine from one step of it.

    Source: as `fit_of`, with the speed alone.
    """
    priced = np.full((1, len(NETWORK_FACTORS)), np.log(predicted))
    return fit_of(Steps(np.array([measured]), priced), _SPEED_ALONE).scalars.speed


def _slopes(steps: Steps, theta: FloatColumn) -> FloatColumn:
    """Change of every log step time for a unit of every scalar; shape (run, scalar).

    Source: derived; differences of 10 % of the bandwidth, the others in closed form.
    """
    step = np.array([0.0, 0.1, 0.0])
    change = steps.log_predicted(theta + step) - steps.log_predicted(theta - step)
    total = np.exp(steps.log_predicted(theta))
    scaled = total - theta[OVERHEAD]
    return np.stack([-scaled / total, change / 0.2, 1 / total], axis=1)


def identified_by(steps: Steps) -> BoolColumn:
    """Which scalars the runs tell apart: always the speed, others by the contrast between runs.

    The speed takes what all runs have in common, so it is left without a prior here. Others are
    dropped, the least known first, until every one left is known twice as well as before.
    """
    start = np.array([np.median(steps.log_predicted(np.zeros(3)) - np.log(steps.measured)), 0, 0])
    slopes = _slopes(steps, start) / NOISE
    free = np.array([True, True, True])
    while free[1:].any():
        precision = np.diag([1e-9, *_PRIOR[1:] ** -2.0])
        known = (slopes.T @ slopes + precision)[np.ix_(free, free)]
        learnt = np.zeros(3)
        learnt[free] = np.sqrt(np.diag(np.linalg.inv(known))) / _PRIOR[free]
        learnt[SPEED] = 0.0
        worst = int(np.argmax(learnt))
        if learnt[worst] <= LEAST_LEARNT:
            break
        free[worst] = False
    return free


@dataclass(frozen=True, slots=True)
class Choice:
    """Which scalars are fitted, and the error of layouts left out of the fit."""

    free: BoolColumn
    error: float | None


def choice_of(steps: Steps, layouts: TextColumn) -> Choice:
    """The speed alone, or all scalars the runs identify if these predict left-out layouts better.

    Two layouts cannot tell: a second scalar explains any two.
    """
    count = len(set(layouts.tolist()))
    if count == 1:
        return Choice(_SPEED_ALONE, None)
    alone = _left_out_error(steps, layouts, _speed_alone)
    identified = identified_by(steps)
    if count < LEAST_LAYOUTS or not identified[1:].any():
        return Choice(_SPEED_ALONE, alone)
    more = _left_out_error(steps, layouts, identified_by)
    return Choice(identified, more) if more < alone else Choice(_SPEED_ALONE, alone)


_SPEED_ALONE = np.array([True, False, False])


def _speed_alone(_: Steps) -> BoolColumn:
    return _SPEED_ALONE


def _left_out_error(
    steps: Steps, layouts: TextColumn, choose: Callable[[Steps], BoolColumn]
) -> float:
    """Median error of each layout predicted from the others."""
    found = np.zeros(len(layouts))
    for layout in dict.fromkeys(layouts.tolist()):
        rest, held = steps.take(layouts != layout), steps.take(layouts == layout)
        fit = fit_of(rest, choose(rest))
        found[layouts == layout] = np.exp(held.log_predicted(fit.theta)) / held.measured - 1
    return float(np.median(np.abs(found)))


def fit_of(steps: Steps, free: BoolColumn) -> Fit:
    """Most probable scalars: reweighted least squares. The overhead is never negative."""
    target = np.log(steps.measured)
    theta = np.zeros(3)
    theta[SPEED] = np.median(steps.log_predicted(theta) - target)
    for _ in range(ITERATIONS):
        slopes = _slopes(steps, theta)[:, free]
        residual = target - steps.log_predicted(theta)
        weight = np.minimum(1.0, NOISE / np.maximum(np.abs(residual), 1e-12)) / NOISE**2
        prior = _prior_precision(theta)[free]
        normal = (slopes * weight[:, None]).T @ slopes + np.diag(prior)
        pull = slopes.T @ (weight * residual) - prior * theta[free]
        step = np.zeros(3)
        step[free] = np.linalg.solve(normal, pull)
        theta = theta + step
        theta[INTER_NODE] = np.clip(theta[INTER_NODE], _LOG_FACTORS[0], _LOG_FACTORS[-1])
        theta[OVERHEAD] = np.clip(theta[OVERHEAD], 0.0, 0.5 * steps.measured.min())
        if np.abs(step).max() < 1e-10:
            break
    spread = np.zeros(3)
    scale = max(1.0, float(1.4826 * np.median(np.abs(residual))) / NOISE)
    spread[free] = scale * np.sqrt(np.diag(np.linalg.inv(normal)))
    return Fit(theta, spread, free)


def _prior_precision(theta: FloatColumn) -> FloatColumn:
    """Pull of what is known before, per unit of each scalar.

    Source: derived; -d ln p / (x dx) of a Cauchy density for the speed, of a normal one for the
    others.
    """
    precision: FloatColumn = _PRIOR**-2.0
    precision[SPEED] = 2 / (SPEED_SPREAD**2 + theta[SPEED] ** 2)
    return precision

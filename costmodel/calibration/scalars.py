"""The most probable scalars of a machine, from step times alone.

    predicted = step(inter_node_bandwidth) / speed + fixed_overhead_seconds

The speed of a job is made of what its runs share, `measured.effects`. A deviation is believed by
the share of the spreads that effects have in those of runs. Residuals of the logarithm count as
Huber does: beyond the spread of layouts, one run moves the speed no further. Runs of several
layouts that agree do: how wide the effects are is then estimated from them too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.calibration.effects import Effects, Shared, effects_of
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.documents import Scalars
from trainplan.costmodel.residuals import MAD_OF_NORMAL, TAIL

INTER_NODE_SPREAD = 0.3
"""Standard deviation in log units.

Source: assumed; published runs reach 0.8 to 1.0 of the datasheet, oversubscribed networks a half.
"""
OVERHEAD_SPREAD_SECONDS = 0.2
"""Standard deviation. Source: assumed; data loading, logging and host work between steps."""
LEAST_LEARNT = 0.5
"""A scalar is identified when the runs halve its spread. Source: assumed."""
NETWORK_FACTORS = np.exp2(np.linspace(-3, 2, 11))
"""Bandwidths each run is priced at; in between its logarithm is interpolated."""
ITERATIONS, CONVERGED = 200, 1e-10
SPEED, INTER_NODE, OVERHEAD = range(3)
"""Places in theta; effects but that of the machine, which is the speed, follow."""
FIRST_EFFECT = 3


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of several runs."""

    measured: FloatColumn
    """Seconds by run."""
    log_priced: FloatColumn
    """Logarithm of predicted seconds by run and `NETWORK_FACTORS`."""
    effects: Effects

    def take(self, rows: BoolColumn) -> Steps:
        """Some of the runs."""
        return Steps(self.measured[rows], self.log_priced[rows], self.effects.take(rows))

    @property
    def start(self) -> FloatColumn:
        """What explains the median run by the speed of the machine alone.

        Source: the formula at the head of this file.
        """
        theta = np.zeros(FIRST_EFFECT - 1 + len(self.effects.names))
        theta[SPEED] = np.median(self.log_predicted(theta) - np.log(self.measured))
        return theta

    def log_speed(self, theta: FloatColumn) -> FloatColumn:
        """Log speed of every run.

        Source: `measured.effects`: the sum of the effects it has.
        """
        return np.asarray(self.effects.members @ _effects(theta))

    def log_predicted(self, theta: FloatColumn) -> FloatColumn:
        """Logarithm of the step times under (log speed, log bandwidth, overhead, effects).

        Source: the formula at the head of this file.
        """
        place = np.interp(theta[INTER_NODE], _LOG_FACTORS, np.arange(len(_LOG_FACTORS)))
        below = min(int(place), len(_LOG_FACTORS) - 2)
        low, high = self.log_priced[:, below], self.log_priced[:, below + 1]
        network = low + (place - below) * (high - low)
        seconds: FloatColumn = np.exp(network - self.log_speed(theta)) + theta[OVERHEAD]
        return np.log(seconds)


_LOG_FACTORS = np.log(NETWORK_FACTORS)


def _effects(theta: FloatColumn) -> FloatColumn:
    """Effects by `Effects.names`, out of theta.

    Source: the order of theta at `FIRST_EFFECT`.
    """
    return np.concatenate([theta[[SPEED]], theta[FIRST_EFFECT:]])


@dataclass(frozen=True, slots=True)
class Fit:
    """Theta and how well it is known."""

    theta: FloatColumn
    covariance: FloatColumn
    """0 where a scalar is left alone."""
    free: BoolColumn
    """By scalar."""
    effects: Effects

    @property
    def spread(self) -> FloatColumn:
        """Standard deviation of every part of theta.

        Source: derived; the diagonal of `covariance` holds the variances.
        """
        return np.sqrt(np.diag(self.covariance))

    def log_speed(self, *names: str) -> tuple[float, float]:
        """Log speed of a job that has these effects, and its standard deviation.

        Source: derived; the effects that nothing is known of add their spread before any run.
        """
        share = self.effects.share(*names)
        row = np.zeros(len(self.theta))
        row[[SPEED, *range(FIRST_EFFECT, len(row))]] = share
        sizes = catalog.spreads().runs
        unknown = (sizes.family.value, sizes.model.value)[int(share.sum()) - 1 :]
        variance = row @ self.covariance @ row + sum(size**2 for size in unknown)
        return float(row @ self.theta), float(np.sqrt(variance))

    def scalars(self, *names: str) -> Scalars:
        """The values, for a job that has these effects."""
        return Scalars(
            speed=float(np.exp(self.log_speed(*names)[0])),
            inter_node_bandwidth=float(np.exp(self.theta[INTER_NODE])),
            fixed_overhead_seconds=float(self.theta[OVERHEAD]),
        )


def fit_of_one(shared: Shared, log_speed: float, machine_spread: float) -> Fit:
    """Most probable effects after one step that ran at `log_speed` of the prediction.

    Source: as `fit_of`, with the speed alone.
    """
    priced = np.full((1, len(NETWORK_FACTORS)), log_speed)
    return fit_of(Steps(np.ones(1), priced, effects_of([shared], machine_spread)), SPEED_ALONE)


def _slopes(steps: Steps, theta: FloatColumn) -> FloatColumn:
    """Change of every log step time for a unit of every part of theta; shape (run, part).

    Source: derived; differences of 10 % of the bandwidth, the others in closed form.
    """
    step = np.zeros(len(theta))
    step[INTER_NODE] = 0.1
    change = steps.log_predicted(theta + step) - steps.log_predicted(theta - step)
    total = np.exp(steps.log_predicted(theta))
    scaled = total - theta[OVERHEAD]
    others = -(scaled / total)[:, None] * steps.effects.members[:, 1:]
    return np.column_stack([-scaled / total, change / 0.2, 1 / total, others])


def identified_by(steps: Steps) -> BoolColumn:
    """Which scalars the runs identify: always the speed, others by the contrast between runs.

    The speed takes what all runs have in common, so it is left without a prior here. Others are
    dropped, the least known first, until every one left is known twice as well as before.
    """
    slopes = _slopes(steps, steps.start)[:, :FIRST_EFFECT] / _noise()
    free = np.array([True, True, True])
    before = np.array([1.0, INTER_NODE_SPREAD, OVERHEAD_SPREAD_SECONDS])
    while free[1:].any():
        precision = np.diag([1e-9, INTER_NODE_SPREAD**-2.0, OVERHEAD_SPREAD_SECONDS**-2.0])
        known = (slopes.T @ slopes + precision)[np.ix_(free, free)]
        learnt = np.zeros(3)
        learnt[free] = np.sqrt(np.diag(np.linalg.inv(known))) / before[free]
        learnt[SPEED] = 0.0
        worst = int(np.argmax(learnt))
        if learnt[worst] <= LEAST_LEARNT:
            break
        free[worst] = False
    return free


SPEED_ALONE = np.array([True, False, False])


def fit_of(steps: Steps, free: BoolColumn) -> Fit:
    """Most probable theta: reweighted least squares. The overhead is never negative."""
    effects, theta, wider = steps.effects, steps.start, 1.0
    every = np.append(free, np.ones(len(effects.names) - 1, dtype=bool))
    agree = len(set(effects.steps.tolist())) > 1
    for _ in range(ITERATIONS):
        before = theta
        theta, covariance = _round(steps, theta, every, wider)
        if np.abs(theta - before).max() < CONVERGED:
            break
        wider = _width(effects, theta, covariance) if agree else 1.0
    off = np.abs(np.log(steps.measured) - steps.log_predicted(theta))
    if agree:
        odd = max(1.0, float(MAD_OF_NORMAL * np.median(off)) / _noise())
        return Fit(theta, odd**2 * covariance, free, effects)
    return Fit(theta, covariance + _undecided(effects, float(np.median(off))), free, effects)


def _round(
    steps: Steps, theta: FloatColumn, free: BoolColumn, wider: float
) -> tuple[FloatColumn, FloatColumn]:
    """Theta and its covariance with weights from the theta before; repeats share one weight.

    Source: Huber, Robust Statistics, 1981, section 7.8: least squares reweighted by size of the
    residuals; priors of normal variables add their inverse variances.
    """
    slopes = _slopes(steps, theta)[:, free]
    residual = np.log(steps.measured) - steps.log_predicted(theta)
    weight = np.minimum(1.0, _noise() / np.maximum(np.abs(residual), 1e-12))
    weight = weight / steps.effects.repeats / _noise() ** 2
    prior = _prior_precision(steps.effects, wider)[free]
    inverse = np.linalg.inv((slopes * weight[:, None]).T @ slopes + np.diag(prior))
    moved = theta.copy()
    moved[free] += inverse @ (slopes.T @ (weight * residual) - prior * theta[free])
    moved[INTER_NODE] = np.clip(moved[INTER_NODE], _LOG_FACTORS[0], _LOG_FACTORS[-1])
    moved[OVERHEAD] = np.clip(moved[OVERHEAD], 0.0, 0.5 * steps.measured.min())
    covariance = np.zeros((len(theta), len(theta)))
    covariance[np.ix_(free, free)] = inverse
    return moved, covariance


def _undecided(effects: Effects, off: float) -> FloatColumn:
    """Covariance that a step adds which stays far off while no other layout was measured.

    Source: derived; an odd machine and an odd run are as likely then, and two values that differ by
    `off` have a variance of a quarter of its square; shared by the variances of the effects.
    """
    size = effects.spreads**2
    total = np.zeros(FIRST_EFFECT - 1 + len(size))
    total[[SPEED, *range(FIRST_EFFECT, len(total))]] = size / size.sum()
    beyond = max(0.0, 1 - _noise() / max(off, 1e-12))
    return np.asarray(np.outer(total, total) * beyond * off**2 / 4)


def _noise() -> float:
    """Spread of what a layout has of its own.

    Source: costmodel/catalog/spreads.toml.
    """
    return catalog.spreads().runs.layout.value


def _width(effects: Effects, theta: FloatColumn, covariance: FloatColumn) -> float:
    """Variance of the effects over that of published machines.

    Source: derived; a Student variable of n degrees is normal with a random variance, whose
    expected inverse, given squares that sum to q over k effects, is (n + k) / (n + q). One step
    alone cannot distinguish an odd machine from an odd run and is not used.
    """
    squares = _effects(theta) ** 2 + _effects(np.diag(covariance))
    known = effects.members.any(axis=0)
    total = float((squares / effects.spreads**2)[known].sum())
    return (TAIL + total) / (TAIL + int(known.sum()))


def _prior_precision(effects: Effects, wider: float) -> FloatColumn:
    """Pull of what is known before, per unit of each part of theta.

    Source: derived; the pull of a normal density is the inverse of its variance, `Effects.spreads`
    squared.
    """
    machine, *others = (wider * effects.spreads**2) ** -1.0
    return np.array([machine, INTER_NODE_SPREAD**-2.0, OVERHEAD_SPREAD_SECONDS**-2.0, *others])

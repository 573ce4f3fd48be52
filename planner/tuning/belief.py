"""What is believed of the step time of every contender, before and after some were measured.

    log step = price + slopes (scalars - scalars priced at) + shared + own

The scalars are of the machine; `shared` is what the model gets wrong of layouts that are alike, and
`own` what it gets wrong of one layout. All are normal before anything is measured, so what they are
after it follows in closed form, scalars and layouts at once. The speed and what one layout has of
its own have wide tails: each counts with the variance that makes what was measured most probable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.layouts import FloatColumn, IntColumn
from trainplan.costmodel.measured.varied import SCALARS
from trainplan.costmodel.spec.evidence.spreads import LayoutSpreads
from trainplan.planner.tuning.alike import alikeness
from trainplan.planner.tuning.contenders import Contenders
from trainplan.planner.tuning.pricing import Linear

Matrix = FloatColumn
TAIL, WIDE_TAIL = 4.0, 1.0
"""Degrees of freedom of what one layout has of its own, and of the speed.

Source: four leave a variance and are usual for odd runs (Lange et al., JASA 84, 1989); one is the
Cauchy density of `costmodel.measured.scalars`.
"""
ROUNDS = 8
WIDER = (1.0, 2.0, 4.0, 8.0)
"""Times as far from the cost model as published runs are: how unlike them a machine may be.

Source: assumed; each is half as likely as the one before it, until the trials say otherwise.
"""
ROUNDING = 1e-9
"""Added to variances before a root is taken."""
SPEED = SCALARS.index("speed")
FREE = 2.0
"""Standard deviation of a scalar of which nothing is known. Source: assumed; a factor of 7."""


@dataclass(frozen=True, slots=True)
class Belief:
    """A joint normal of the scalars and of the log step time of every contender."""

    scalars: FloatColumn
    scalars_covariance: Matrix
    log_seconds: FloatColumn
    covariance: Matrix
    """Of the contenders."""
    cross: Matrix
    """Shape (contender, scalar)."""

    @property
    def spread(self) -> FloatColumn:
        """Standard deviation of every log step time."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def scalars_spread(self) -> FloatColumn:
        """Standard deviation of every scalar."""
        return np.sqrt(np.maximum(np.diag(self.scalars_covariance), 0.0))


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measured steps of some contenders."""

    rows: IntColumn
    log_seconds: FloatColumn
    noise: FloatColumn
    """Standard deviation of each, in log units."""


def prior_spreads() -> FloatColumn:
    """Standard deviation of every scalar before anything is measured, by `SCALARS`.

    Source: `catalog/spreads.toml`.
    """
    return np.array([catalog.spreads().scalars[name].value for name in SCALARS])


@dataclass(frozen=True)
class Prior:
    """What is believed before a trial."""

    linear: Linear
    spreads: FloatColumn
    """Of the scalars."""
    alike: Matrix
    """Correlation of `shared` between contenders."""
    sizes: LayoutSpreads
    wider: float = 1.0
    """What all but the speed is multiplied with, at least: one of `WIDER`."""

    @property
    def _own(self) -> float:
        """Variance of what one layout has of its own."""
        return float((self.wider * self.sizes.own.value) ** 2)

    @property
    def _scalars(self) -> FloatColumn:
        """Variances of the scalars."""
        wider = np.full(len(SCALARS), self.wider)
        wider[SPEED] = 1.0
        return (wider * self.spreads) ** 2

    def _as_wide(self, measured: Measurements) -> Prior:
        """As wide as makes the contrasts between what was measured most probable.

        Source: evidence of a normal prior, Rasmussen and Williams, Gaussian Processes, equation
        2.30; the speed is left free, since what all layouts have in common tells nothing of them.
        """
        wide = [replace(self, wider=factor) for factor in WIDER if factor >= self.wider]
        return max(wide, key=lambda one: one._evidence(measured) - np.log(one.wider))

    def _evidence(self, measured: Measurements) -> float:
        scalars, rows = self._scalars, measured.rows
        scalars[SPEED] = FREE**2
        belief = self._normal(scalars, np.full(len(self.alike), self._own))
        seen = belief.covariance[np.ix_(rows, rows)] + np.diag(measured.noise**2)
        surprise = measured.log_seconds - belief.log_seconds[rows]
        _, size = np.linalg.slogdet(seen)
        return float(-0.5 * (surprise @ np.linalg.solve(seen, surprise) + size))

    def after(self, measured: Measurements) -> Belief:
        """The belief once some were measured.

        Source: Lange, Little and Taylor, JASA 84, 1989, equations 4 to 6: expectation and
        maximisation for Student's t, here of `own` and of the speed.
        """
        if not len(measured.rows):
            return self._normal(self._scalars, np.full(len(self.alike), self._own))
        return self._as_wide(measured)._conditioned_on(measured)

    def _conditioned_on(self, measured: Measurements) -> Belief:
        own, scalars = np.full(len(self.alike), self._own), self._scalars
        size, rows = self._own, measured.rows
        for _ in range(ROUNDS):
            belief = self._normal(scalars, own)
            found, residual = _conditioned(belief, measured, own)
            own = own.copy()
            own[rows] = size * (TAIL + residual / size) / (TAIL + 1)
            moved = found.scalars[SPEED] ** 2 + found.scalars_covariance[SPEED, SPEED]
            scalars = scalars.copy()
            scalars[SPEED] = (WIDE_TAIL * self.spreads[SPEED] ** 2 + moved) / (WIDE_TAIL + 1)
        return _conditioned(self._normal(scalars, own), measured, own)[0]

    def _normal(self, scalars: FloatColumn, own: FloatColumn) -> Belief:
        """Before any measurement, with given variances of the scalars and of `own`."""
        slopes, shared = self.linear.slopes, (self.wider * self.sizes.shared.value) ** 2
        covariance = (slopes * scalars) @ slopes.T + shared * self.alike + np.diag(own)
        return Belief(
            scalars=np.zeros(len(scalars)),
            scalars_covariance=np.diag(scalars),
            log_seconds=self.linear.prices.log_seconds - slopes @ self.linear.at,
            covariance=covariance,
            cross=slopes * scalars,
        )


def prior_of(
    contenders: Contenders, linear: Linear, spreads: FloatColumn, wider: float = 1.0
) -> Prior:
    """The prior of some contenders around a point they were priced at."""
    sizes = catalog.spreads().layouts
    return Prior(linear, spreads, alikeness(contenders, sizes.likeness.value), sizes, wider)


def _conditioned(
    prior: Belief, measured: Measurements, own: FloatColumn
) -> tuple[Belief, FloatColumn]:
    """The belief after some measurements, and the mean square of what each row has of its own.

    Source: normal distributions, Rasmussen and Williams, Gaussian Processes, equations 2.23, 2.24.
    """
    rows = measured.rows
    seen = prior.covariance[np.ix_(rows, rows)] + np.diag(measured.noise**2)
    inverse = np.linalg.inv(seen)
    surprise = measured.log_seconds - prior.log_seconds[rows]
    gain, scalar_gain = prior.covariance[:, rows] @ inverse, prior.cross[rows].T @ inverse
    belief = Belief(
        scalars=prior.scalars + scalar_gain @ surprise,
        scalars_covariance=prior.scalars_covariance - scalar_gain @ prior.cross[rows],
        log_seconds=prior.log_seconds + gain @ surprise,
        covariance=prior.covariance - gain @ prior.covariance[rows],
        cross=prior.cross - gain @ prior.cross[rows],
    )
    sizes = own[rows]
    mean = sizes * (inverse @ surprise)
    square = mean**2 + sizes - sizes**2 * np.diag(inverse)
    return belief, np.asarray(square)


def samples(belief: Belief, rows: IntColumn, number: int, seed: int) -> Matrix:
    """Draws of the log step times of some contenders at once, shape (draw, row)."""
    covariance = belief.covariance[np.ix_(rows, rows)] + ROUNDING * np.eye(len(rows))
    root = np.linalg.cholesky(covariance)
    noise = np.random.default_rng(seed).standard_normal((number, len(rows)))
    return np.asarray(belief.log_seconds[rows] + noise @ root.T)

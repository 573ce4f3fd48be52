"""What is believed of the step time of every contender, before and after some were measured.

    log step = price + slopes (scalars - scalars priced at) + shared + own

The scalars are of the machine; `shared` is what the model gets wrong of layouts that are alike, and
`own` what it gets wrong of one layout. All are normal before anything is measured, so what they are
after it follows in closed form, scalars and layouts at once. The speed and what one layout has of
its own have wide tails: each counts with the variance that makes what was measured most probable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

Source: assumed; four are few enough for odd runs and leave a variance. One is the Cauchy density of
`costmodel.measured.scalars`.
"""
ROUNDS = 12
LARGE_SPEED = 0.5
"""Spread of the speed that the rounds begin with.

Source: as the widest groups in costmodel/measured/scalars.py, SPEED_SPREAD.
"""
ROUNDING = 1e-9
"""Added to variances before a root is taken."""
SPEED = SCALARS.index("speed")


@dataclass(frozen=True, slots=True)
class Belief:
    """A joint normal of the scalars and of the log step time of every contender."""

    scalars: FloatColumn
    scalars_covariance: Matrix
    log_seconds: FloatColumn
    variance: FloatColumn
    """Of every log step time."""
    cross: Matrix
    """Covariance of log step times and scalars, shape (contender, scalar)."""
    between: Callable[[IntColumn], Matrix]
    """Covariance of some log step times with each other."""

    @property
    def spread(self) -> FloatColumn:
        """Standard deviation of every log step time."""
        return np.sqrt(np.maximum(self.variance, 0.0))

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

    Source: costmodel/catalog/spreads.toml.
    """
    return np.array([catalog.spreads().scalars[name].value for name in SCALARS])


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before a trial."""

    linear: Linear
    spreads: FloatColumn
    """Of the scalars."""
    alike: Matrix
    """Correlation of `shared` between contenders."""
    sizes: LayoutSpreads

    def after(self, measured: Measurements, *, wide_tails: bool = True) -> Belief:
        """The belief once some were measured; without wide tails all is normal.

        Source: derived; a Student variable of n degrees and scale s is normal with a random
        variance whose expected inverse, given a square r, is (n + 1) / (n s^2 + r): each round
        puts it in.
        Lange, Little and Taylor, JASA 84, 1989, pages 881 to 896, is the same with one scale.
        """
        size, rows = self.sizes.own.value**2, measured.rows
        scalars, own = self.spreads**2, np.full(len(rows), size)
        if wide_tails and len(rows):
            scalars[SPEED] = LARGE_SPEED**2  # what all steps share is first asked of the speed
        for _ in range(ROUNDS if wide_tails and len(rows) else 0):
            speed, residual = self._squares(measured, scalars, own)
            own = size * (TAIL + residual / size) / (TAIL + 1)
            scalars[SPEED] = (WIDE_TAIL * self.spreads[SPEED] ** 2 + speed) / (WIDE_TAIL + 1)
        return self._conditioned(measured, scalars, own)

    def _squares(
        self, measured: Measurements, scalars: FloatColumn, own: FloatColumn
    ) -> tuple[float, FloatColumn]:
        """Mean square of the speed and of what each measured layout has of its own."""
        inverse, surprise = self._surprise(measured, scalars, own)
        pull = inverse @ surprise
        square = (own * pull) ** 2 + own - own**2 * np.diag(inverse)
        slope = scalars[SPEED] * self.linear.slopes[measured.rows, SPEED]
        speed = (slope @ pull) ** 2 + scalars[SPEED] - slope @ inverse @ slope
        return float(speed), np.asarray(square)

    def _surprise(
        self, measured: Measurements, scalars: FloatColumn, own: FloatColumn
    ) -> tuple[Matrix, FloatColumn]:
        """Inverse covariance of what was measured, and how far it is from what was expected."""
        rows = measured.rows
        same = np.sqrt(np.outer(own, own)) * (rows[:, None] == rows[None])
        seen = self._covariance(rows, rows, scalars) + same + np.diag(measured.noise**2)
        return np.linalg.inv(seen), measured.log_seconds - self._expected[rows]

    @property
    def _expected(self) -> FloatColumn:
        """Log step times before any measurement: the scalars are 0 there."""
        return np.asarray(self.linear.prices.log_seconds - self.linear.slopes @ self.linear.at)

    def _covariance(self, rows: IntColumn, others: IntColumn, scalars: FloatColumn) -> Matrix:
        """Of what contenders share, before any measurement, given variances of the scalars."""
        slopes, shared = self.linear.slopes, self.sizes.shared.value**2
        alike = shared * self.alike[np.ix_(rows, others)]
        return np.asarray((slopes[rows] * scalars) @ slopes[others].T + alike)

    def _conditioned(
        self, measured: Measurements, scalars: FloatColumn, own: FloatColumn
    ) -> Belief:
        """The belief after measurements, given the variances.

        Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equations
        2.23 and 2.24.
        """
        every, rows = np.arange(len(self.alike)), measured.rows
        inverse, surprise = self._surprise(measured, scalars, own)
        whole = np.full(len(every), self.sizes.own.value**2)
        whole[rows] = own
        pull = self._covariance(every, rows, scalars)
        pull += whole[:, None] * (every[:, None] == rows[None])
        gain, cross = pull @ inverse, self.linear.slopes * scalars
        scalar_gain = cross[rows].T @ inverse
        shared = ((self.linear.slopes**2) * scalars).sum(axis=1) + self.sizes.shared.value**2

        def between(some: IntColumn) -> Matrix:
            found = self._covariance(some, some, scalars) + np.diag(whole[some])
            return np.asarray(found - gain[some] @ pull[some].T)

        return Belief(
            scalars=scalar_gain @ surprise,
            scalars_covariance=np.diag(scalars) - scalar_gain @ cross[rows],
            log_seconds=self._expected + gain @ surprise,
            variance=shared + whole - (gain * pull).sum(axis=1),
            cross=cross - gain @ cross[rows],
            between=between,
        )


def prior_of(contenders: Contenders, linear: Linear, spreads: FloatColumn) -> Prior:
    """The prior of some contenders around a point they were priced at."""
    sizes = catalog.spreads().layouts
    return Prior(linear, spreads, alikeness(contenders, sizes.likeness.value), sizes)


def samples(belief: Belief, rows: IntColumn, number: int, seed: int) -> Matrix:
    """Draws of the log step times of some contenders at once, shape (draw, row)."""
    root = np.linalg.cholesky(belief.between(rows) + ROUNDING * np.eye(len(rows)))
    noise = np.random.default_rng(seed).standard_normal((number, len(rows)))
    return np.asarray(belief.log_seconds[rows] + noise @ root.T)

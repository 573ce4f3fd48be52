"""What is believed of the step time of every contender, before and after some were measured.

    log step = price + slopes (scalars - scalars priced at) + shared + own

The scalars are of the machine; `shared` is what the model gets wrong of similar layouts, and
`own` what it gets wrong of one layout. All are normal before anything is measured, so what they are
after it follows in closed form, scalars and layouts at once. The speed and what one layout has of
its own have wide tails: each counts with the variance that makes what was measured most probable.
How far this machine is from the published runs that gave the spreads is not known: beliefs of
several widths are averaged by how probable each makes the contrasts between trials.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.catalog import LayoutSpreads
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.measured import SCALARS
from trainplan.planner.tuning.alike import alikeness
from trainplan.planner.tuning.contenders import Contenders
from trainplan.planner.tuning.pricing import Linear

Matrix = FloatColumn
TAIL, WIDE_TAIL = 4.0, 1.0
"""Degrees of freedom of what one layout has of its own, and of the speed.

Source: assumed; four are few enough for odd runs and leave a variance. One is the Cauchy density of
`SPEED_SPREAD` in examples/tuning/spreads.py.
"""
ROUNDS = 12
"""Source: assumed; the variances then move by less than a hundredth."""
LARGE_SPEED = 0.5
"""Spread of the speed that the rounds begin with.

Source: as the widest groups in examples/tuning/spreads.py, SPEED_SPREAD.
"""
ROUNDING = 1e-9
"""Added to variances before a root is taken."""
SPEED = SCALARS.index("speed")
WIDER = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Times as far from the cost model as published runs are: how different from them a machine may be.

Source: assumed; until the trials show otherwise each halving is half as likely, for what is fitted
sees no more of a machine, and each doubling a quarter, for published runs are many.
"""
LEAST_WEIGHT = 0.01
"""Of a width, against that of the likeliest. Source: assumed; less changes no printed figure."""


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

    @property
    def same(self) -> Matrix:
        """1 where two are of one contender."""
        return np.asarray(self.rows[:, None] == self.rows[None], dtype=float)


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
    wider: float = 1.0
    """What spreads are multiplied with, one of `WIDER`: never that of the speed, and those of the
    other scalars by no less than 1. With 1 `after` tries every width, else none below."""

    @property
    def _own(self) -> float:
        """Variance of what one layout has of its own."""
        return float((self.wider * self.sizes.own.value) ** 2)

    @property
    def _shared(self) -> float:
        """Variance of what similar layouts share."""
        return float((self.wider * self.sizes.shared.value) ** 2)

    @property
    def _scalars(self) -> FloatColumn:
        """Variances of the scalars."""
        wider = np.full(len(SCALARS), max(1.0, self.wider))
        wider[SPEED] = 1.0
        return np.asarray((wider * self.spreads) ** 2)

    def after(self, measured: Measurements, *, wide_tails: bool = True) -> Belief:
        """The belief once some were measured; without wide tails all is normal, of one width.

        Source: evidence of a normal prior, Rasmussen and Williams, Gaussian Processes for Machine
        Learning, 2006, equation 2.30, times the prior of `WIDER`.
        """
        if not wide_tails:
            return self._after(measured, wide_tails=False)
        widths = [one for one in WIDER if self.wider == 1 or one >= self.wider]
        wide = [replace(self, wider=factor) for factor in widths]
        logs = np.array([one._evidence(measured) + _log_prior(one.wider) for one in wide])
        weights = np.exp(logs - logs.max())
        kept = [(w, one) for w, one in zip(weights, wide, strict=True) if w > LEAST_WEIGHT]
        whole = sum(weight for weight, _ in kept)
        return _mixed([(weight / whole, one._after(measured)) for weight, one in kept])

    def _evidence(self, measured: Measurements) -> float:
        """Log probability of the contrasts between what was measured, up to a constant.

        What all layouts have in common shows nothing of these: the speed is left free. An odd run
        counts with the variance that makes it most probable, which costs what that is improbable.
        """
        size, scalars = self._own, self._scalars
        scalars[SPEED] = LARGE_SPEED**2
        own = np.full(len(measured.rows), size)
        for _ in range(ROUNDS):
            _, residual = self._squares(measured, scalars, own)
            own = size * (TAIL + residual / size) / (TAIL + 1)
        inverse, surprise = self._surprise(measured, scalars, own)
        _, sharpness = np.linalg.slogdet(inverse)
        odd = -TAIL / 2 * (np.log(own / size) + size / own) / measured.same.sum(axis=1)
        return float(0.5 * (sharpness - surprise @ inverse @ surprise) + odd.sum())

    def _after(self, measured: Measurements, *, wide_tails: bool = True) -> Belief:
        """The belief of one width.

        Source: derived; a Student variable of n degrees and scale s is normal with a random
        variance whose expected inverse, given a square r, is (n + 1) / (n s^2 + r): each round
        puts it in.
        Lange, Little and Taylor, JASA 84, 1989, pages 881 to 896, is the same with one scale.
        """
        size, rows = self._own, measured.rows
        scalars, own = self._scalars, np.full(len(rows), size)
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
        pull, same = inverse @ surprise, measured.same
        square = (own * (same @ pull)) ** 2 + own - own**2 * np.diag(same @ inverse @ same)
        slope = scalars[SPEED] * self.linear.slopes[measured.rows, SPEED]
        speed = (slope @ pull) ** 2 + scalars[SPEED] - slope @ inverse @ slope
        return float(speed), np.asarray(square)

    def _surprise(
        self, measured: Measurements, scalars: FloatColumn, own: FloatColumn
    ) -> tuple[Matrix, FloatColumn]:
        """Inverse covariance of what was measured, and how far it is from what was expected."""
        rows = measured.rows
        same = np.sqrt(np.outer(own, own)) * measured.same
        seen = self._covariance(rows, rows, scalars) + same + np.diag(measured.noise**2)
        return np.asarray(np.linalg.inv(seen)), measured.log_seconds - self._expected[rows]

    @property
    def _expected(self) -> FloatColumn:
        """Log step times before any measurement: the scalars are 0 there."""
        return np.asarray(self.linear.prices.log_seconds - self.linear.slopes @ self.linear.at)

    def _covariance(self, rows: IntColumn, others: IntColumn, scalars: FloatColumn) -> Matrix:
        """Of what contenders share, before any measurement, given variances of the scalars."""
        slopes = self.linear.slopes
        alike = self._shared * self.alike[np.ix_(rows, others)]
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
        whole = np.full(len(every), self._own)
        whole[rows] = own
        pull = self._covariance(every, rows, scalars)
        pull += whole[:, None] * (every[:, None] == rows[None])
        gain, cross = pull @ inverse, self.linear.slopes * scalars
        scalar_gain = cross[rows].T @ inverse
        shared = ((self.linear.slopes**2) * scalars).sum(axis=1) + self._shared

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


def _log_prior(wider: float) -> float:
    """Logarithm of the probability of a width before any trial, up to a constant."""
    return float(np.log(wider) if wider < 1 else -2 * np.log(wider))


def _mixed(parts: Sequence[tuple[float, Belief]]) -> Belief:
    """The normal belief with mean and covariance of a mixture.

    Source: derived; the covariance of a mixture is the mean of its parts' plus that of their means.
    """
    weights = np.array([weight for weight, _ in parts])
    beliefs = [belief for _, belief in parts]
    scalars = weights @ np.stack([one.scalars for one in beliefs])
    seconds = weights @ np.stack([one.log_seconds for one in beliefs])
    off = [(one.scalars - scalars, one.log_seconds - seconds) for one in beliefs]

    def mean(matrices: Iterable[Matrix]) -> Matrix:
        pairs = zip(weights.tolist(), matrices, strict=True)
        return np.asarray(sum(weight * matrix for weight, matrix in pairs))

    def between(some: IntColumn) -> Matrix:
        pairs = zip(beliefs, off, strict=True)
        return mean(one.between(some) + np.outer(d[some], d[some]) for one, (_, d) in pairs)

    both = list(zip(beliefs, off, strict=True))
    return Belief(
        scalars=scalars,
        scalars_covariance=mean(one.scalars_covariance + np.outer(s, s) for one, (s, _) in both),
        log_seconds=seconds,
        variance=mean(one.variance + d**2 for one, (_, d) in both),
        cross=mean(one.cross + np.outer(d, s) for one, (s, d) in both),
        between=between,
    )


def prior_of(
    contenders: Contenders, linear: Linear, spreads: FloatColumn, wider: float = 1.0
) -> Prior:
    """The prior of some contenders around a point they were priced at."""
    sizes = catalog.spreads().layouts
    return Prior(linear, spreads, alikeness(contenders, sizes.likeness.value), sizes, wider)


def samples(belief: Belief, rows: IntColumn, number: int, seed: int) -> Matrix:
    """Draws of the log step times of some contenders at once, shape (draw, row)."""
    root = np.linalg.cholesky(belief.between(rows) + ROUNDING * np.eye(len(rows)))
    noise = np.random.default_rng(seed).standard_normal((number, len(rows)))
    return np.asarray(belief.log_seconds[rows] + noise @ root.T)

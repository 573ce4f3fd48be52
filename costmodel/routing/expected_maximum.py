"""Expected maximum of sums of many small numbers, without sampling.

Rows of ranks are sums over thousands of tokens, so each is near a normal variable; their skewness
is kept by a shifted gamma variable of the same three moments. The maximum is integrated.

Accuracy: against exact multinomial maxima, and against draws of the multivariate hypergeometric,
the expected maximum is within 0.1 % from 64 rows of a rank on, within 0.5 % from 16 and within 3 %
from 1 (tests/unit/costmodel/routing/test_expected_maximum.py).
"""

import math
from functools import lru_cache

import numpy as np

from trainplan.costmodel.columns import FloatColumn

REACH = 9.0
"""Standard deviations beyond which a normal variable is nothing. Source: derived; the normal tail
beyond 9 has less than 1e-18, and of some thousands of variables less than 1e-14."""
POINTS = 1201
"""Of the integral. Source: measured; twice as many change no maximum by 1e-7 of its deviation."""
LEAST_SKEW = 1e-6
"""A smaller skewness is none: its shifted gamma variable is a normal one to rounding."""
MOST_SKEW = 2.0
"""A shifted gamma variable with more has most of its mass at one end. Source: derived; 2 is that of
an exponential variable, and of a count with a mean of a quarter."""
LEAST_DEVIATION = 1e-9
"""Of the mean: less is rounding of a sum that never varies."""


@lru_cache(maxsize=1)
def _normal_table() -> tuple[FloatColumn, FloatColumn]:
    """The normal distribution function at close points.

    Source: derived; the probability below z is half of erfc(-z / sqrt 2), which the library has.
    """
    points = np.linspace(-REACH, REACH, 36_001)
    values = [0.5 * math.erfc(-z / math.sqrt(2.0)) for z in points.tolist()]
    return points, np.array(values)


def normal_below(values: FloatColumn) -> FloatColumn:
    """Probability that a standard normal variable is below.

    Source: the table, whose points are 0.0005 apart: linear in between it is off by less than 1e-8.
    """
    return np.asarray(np.interp(values, *_normal_table(), left=0.0, right=1.0))


def expected_maximum(means: FloatColumn, variances: FloatColumn, thirds: FloatColumn) -> float:
    """Expected largest of independent variables of given mean, variance and third central moment.

    Source: `moments_of_maximum`.
    """
    return moments_of_maximum(means, variances, thirds)[0]


def moments_of_maximum(
    means: FloatColumn, variances: FloatColumn, thirds: FloatColumn
) -> tuple[float, float]:
    """Mean and variance of the largest of such variables.

    Source: E[max] = a + integral of 1 - F over x > a where F(a) = 0, with F the product of their
    distribution functions; each is that of the shifted gamma variable with its moments, by Wilson
    and Hilferty, PNAS 17 (1931), 684: the cube root of a gamma variable is nearly normal. Its
    second moment about a is the integral of 2 (x - a) (1 - F).
    """
    moments = np.stack([means, variances, thirds])
    (mean, variance, third), times = np.unique(moments, axis=1, return_counts=True)
    deviation = np.sqrt(np.maximum(variance, 0.0))
    deviation = np.where(deviation > LEAST_DEVIATION * mean, deviation, 0.0)
    largest = float(mean.max())
    if len(means) == 1 or not deviation.any():
        return largest, float(max(variances.max(), 0.0)) if len(means) == 1 else 0.0
    skew = np.divide(third, deviation**3, out=np.zeros_like(third), where=deviation > 0)
    skew = np.clip(skew, -MOST_SKEW, MOST_SKEW)
    low = float((mean + deviation * quantile(-REACH, skew)).max())
    high = float((mean + deviation * quantile(REACH, skew)).max())
    points = np.linspace(low, high, POINTS)
    below = np.ones(POINTS)
    for one in range(len(mean)):
        z = normal_score(points - mean[one], deviation[one], float(skew[one]))
        below *= normal_below(z) ** times[one]
    above = 1.0 - below
    area = float((above[1:] + above[:-1]).sum()) / 2 * (high - low) / (POINTS - 1)
    second = float((2 * (points - low) * above).sum()) * (high - low) / (POINTS - 1)
    return max(largest, low + area), max(0.0, second - area**2)


def quantile(z: float, skew: FloatColumn) -> FloatColumn:
    """Deviations from the mean of a shifted gamma variable at a normal score.

    Source: as `expected_maximum`: w = 2 / g ((1 - g^2 / 36 + g z / 6)^3 - 1); w = z where g is 0.
    """
    g = np.where(np.abs(skew) < LEAST_SKEW, 1.0, skew)
    root = 1 - g**2 / 36 + g * z / 6
    return np.where(np.abs(skew) < LEAST_SKEW, z, 2 / g * (root**3 - 1))


def normal_score(
    distance: FloatColumn, deviation: float | FloatColumn, skew: float | FloatColumn
) -> FloatColumn:
    """The normal score of a distance from the mean. Source: `quantile` turned round."""
    known = np.asarray(deviation) > 0
    w = distance / np.where(known, deviation, 1.0)
    symmetric = np.abs(skew) < LEAST_SKEW
    g = np.where(symmetric, 1.0, skew)
    scores = np.where(symmetric, w, 6 / g * (np.cbrt(1 + g * w / 2) - 1 + skew**2 / 36))
    return np.where(known, scores, np.where(distance >= 0, 2 * REACH, -2 * REACH))

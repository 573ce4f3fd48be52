"""The expected maximum against exact distributions, draws and hand-computed cases."""

import math

import numpy as np
import pytest

from trainplan.costmodel.routing.expected_maximum import (
    expected_maximum,
    normal_below,
)


def exact_multinomial_maximum(rows, places):
    """E[max] of `rows` balls in `places`: Poisson counts, given their sum, are multinomial."""

    def poisson(mean, most):
        j = np.arange(most + 1)
        return np.exp(j * math.log(mean) - mean - np.array([math.lgamma(i + 1) for i in j]))

    of_sum = poisson(rows, rows)[rows]
    one, total = poisson(rows / places, rows), 0.0
    for x in range(rows):
        sums = np.ones(1)
        for _ in range(places):
            sums = np.convolve(sums, one[: x + 1])[: rows + 1]
        total += 1.0 - (sums[rows] if len(sums) > rows else 0.0) / of_sum
    return total


def multinomial_moments(rows, places):
    """Independent variables of the same differences: see `_fullest` of the routing."""
    p = 1.0 / places
    variance = rows * p * (1 - p) * places / (places - 1)
    return (np.full(places, x) for x in (rows * p, variance, rows * p * (1 - p) * (1 - 2 * p)))


@pytest.mark.parametrize(
    ("rows", "places", "within"),
    [
        (8, 8, 0.03),
        (16, 4, 0.03),
        (64, 4, 0.005),
        (128, 8, 0.005),
        (256, 4, 0.001),
        (160, 2, 0.001),
    ],
)
def test_the_maximum_of_a_multinomial_is_nearly_exact(rows, places, within):
    found = expected_maximum(*multinomial_moments(rows, places))
    assert found == pytest.approx(exact_multinomial_maximum(rows, places), rel=within)


def test_two_equal_normals_have_the_textbook_maximum():
    """E[max] of two = mean + deviation / sqrt(pi)."""
    found = expected_maximum(np.full(2, 100.0), np.full(2, 9.0), np.zeros(2))
    assert found == pytest.approx(100 + 3 / math.sqrt(math.pi), rel=1e-8)


def test_many_equal_normals_have_the_tabulated_maximum():
    """E[max] of 10 and 100 standard normals: 1.53875 and 2.50759 (Tippett, 1925)."""
    for count, expected in ((10, 1.53875), (100, 2.50759)):
        found = expected_maximum(np.full(count, 1e3), np.ones(count), np.zeros(count))
        assert found - 1e3 == pytest.approx(expected, abs=1e-4)


def test_two_exponentials_have_the_textbook_maximum():
    """Of mean 1, variance 1, third moment 2: E[max] = 1 + 1/2, as a shifted gamma variable."""
    found = expected_maximum(np.ones(2), np.ones(2), np.full(2, 2.0))
    assert found == pytest.approx(1.5, rel=0.01)


def test_what_never_varies_has_its_largest_mean():
    nothing = np.zeros(3)
    assert expected_maximum(np.array([1.0, 5.0, 2.0]), nothing, nothing) == 5.0
    assert expected_maximum(np.array([7.0]), np.array([3.0]), nothing[:1]) == 7.0


def test_one_that_stands_out_decides_alone():
    means, variances = np.array([1e4, 1e3, 1e3]), np.full(3, 100.0)
    assert expected_maximum(means, variances, np.zeros(3)) == pytest.approx(1e4, rel=1e-9)


def test_unequal_variables_are_as_draws_say():
    rng = np.random.default_rng(11)
    means = np.array([100.0, 104.0, 96.0, 90.0])
    draws = rng.poisson(means, size=(200_000, 4)).max(axis=1)
    found = expected_maximum(means, means, means)
    assert found == pytest.approx(draws.mean(), abs=4 * draws.std() / math.sqrt(len(draws)))


def test_saturated_counts_do_not_blow_up():
    """A count that is at its limit all but never has a tiny variance and a huge skewness."""
    means, variances = np.full(8, 160.0), np.full(8, 1e-30)
    assert expected_maximum(means, variances, np.full(8, -1e-8)) == 160.0


def test_the_normal_distribution_is_that_of_the_error_function():
    z = np.linspace(-6, 6, 1001)
    exact = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z.tolist()])
    assert np.abs(normal_below(z) - exact).max() < 1e-8

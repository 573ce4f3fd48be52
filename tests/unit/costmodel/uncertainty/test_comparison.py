"""The error of a difference of two layouts: by hand."""

from math import exp, log
from statistics import NormalDist

import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.uncertainty.intervals import (
    MOST,
    comparison_spread,
    is_near_tie,
    near_tie_range,
    probability_faster,
    unlikeness,
    width_factor,
)

BASE = Layout(tp=2, pp=4, dp=8)
FURTHER = (
    BASE.model_copy(update={"micro_batch_size": 2}),
    BASE.model_copy(update={"micro_batch_size": 2, "zero_stage": 2}),
    Layout(tp=8, pp=2, dp=4, micro_batch_size=2),
)


def test_every_doubling_and_every_choice_counts_one():
    assert [unlikeness(BASE, one) for one in (BASE, *FURTHER)] == [0, 1, 2, 4]
    full = Layout(
        tp=2, pp=4, dp=8, recompute="full", recompute_method="block", recompute_num_layers=1
    )
    assert unlikeness(BASE, full) == 1
    assert unlikeness(FURTHER[2], BASE) == unlikeness(BASE, FURTHER[2])


def test_the_more_unlike_two_layouts_are_the_wider_is_the_error_of_their_ratio():
    widths = [comparison_spread(BASE, one) for one in (BASE, *FURTHER)]
    assert widths == sorted(set(widths))
    assert widths[3] == pytest.approx(2 * widths[1])
    assert widths[1] * NormalDist().inv_cdf(0.9) == pytest.approx(
        catalog.intervals().comparison.half_width, rel=1e-4
    )


def test_beyond_a_limit_errors_share_no_less():
    far = Layout(tp=1, pp=1, dp=64, micro_batch_size=8, zero_stage=3)
    assert unlikeness(BASE, far) > MOST
    assert width_factor(BASE, far) == 2.0


def test_layouts_that_differ_in_what_is_not_counted_are_one_change_apart():
    other = BASE.model_copy(update={"sequence_parallel": True})
    assert width_factor(BASE, other) == width_factor(BASE, FURTHER[0]) == 1.0


def test_a_near_tie_is_the_faster_one_in_one_case_of_three():
    one, most = near_tie_range()
    for other, limit in ((FURTHER[0], 1 + one), (FURTHER[2], 1 + most)):
        ratio = NormalDist(log(limit), comparison_spread(BASE, other))
        assert ratio.cdf(0) == pytest.approx(1 / 3, abs=1e-4)
        assert probability_faster(other, limit, BASE, 1.0) == pytest.approx(1 / 3, abs=1e-4)
        assert is_near_tie(other, limit * 0.999, BASE, 1.0)
        assert not is_near_tie(other, limit * 1.001, BASE, 1.0)


def test_layouts_alike_are_told_apart_with_more_confidence():
    close, far = (probability_faster(one, exp(0.05), BASE, 1.0) for one in FURTHER[::2])
    assert close < far < 0.5
    assert probability_faster(BASE, 1.0, BASE, 1.0) == 0.5
    assert probability_faster(BASE, 1.0, FURTHER[0], exp(0.05)) == pytest.approx(1 - close)

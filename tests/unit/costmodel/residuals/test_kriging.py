"""What a curve leaves, between the points it was measured at."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel.residuals.kriging import NUGGET, Residuals, residuals

SIZES = np.array([1e3, 8e3, 64e3, 512e3])
RATIOS = np.array([1.4, 1.0, 0.8, 0.9])
SEPARATE = np.array([2.0, 2.0**30])
"""So far apart that neither tells of the other."""
POINTS = st.lists(st.tuples(st.floats(1, 1e12), st.floats(0.2, 5)), min_size=3, max_size=12).map(
    lambda pairs: tuple(np.array(column) for column in zip(*pairs, strict=True))
)


def test_at_a_measured_point_the_factor_is_the_measured_ratio_within_the_nugget():
    left = residuals((SEPARATE,), np.array([2.0, 0.5]), level=0.0)
    believed = np.log(left.factor(SEPARATE)) / np.log([2.0, 0.5])
    assert believed == pytest.approx(1 / (1 + NUGGET), rel=1e-4)


@pytest.mark.parametrize("nugget", [0.0, 0.15, 1.0])
def test_what_is_not_believed_of_a_point_is_its_weight_times_the_nugget(nugget):
    left = residuals((SIZES,), RATIOS, nugget=nugget)
    doubted = np.log(RATIOS) - np.log(left.factor(SIZES))
    assert doubted == pytest.approx(nugget * left.weights, abs=1e-12)


def test_without_a_nugget_every_point_is_met():
    assert residuals((SIZES,), RATIOS, nugget=0.0).factor(SIZES) == pytest.approx(RATIOS)


def test_far_from_all_points_the_factor_is_the_level():
    far = np.array([2.0**120])
    stated = residuals((SIZES,), RATIOS, level=np.log(1.3))
    assert stated.factor(far) == pytest.approx([1.3], rel=1e-6)
    median = residuals((SIZES,), RATIOS)
    assert median.level == pytest.approx(np.median(np.log(RATIOS)))
    assert median.factor(far) == pytest.approx(np.exp([median.level]), rel=1e-6)


def test_one_point_is_a_level():
    left = residuals((np.array([1e6]), np.array([64.0])), np.array([1.7]))
    assert left.factor(np.array([1e6, 1.0]), np.array([64.0, 1e9])) == pytest.approx([1.7, 1.7])


@given(points=POINTS, ratio=st.floats(0.1, 10), size=st.floats(1, 1e15))
def test_the_same_ratio_everywhere_is_that_ratio(points, ratio, size):
    sizes, _ = points
    left = residuals((sizes,), np.full(len(sizes), ratio))
    assert left.factor(np.array([size])) == pytest.approx([ratio])


@given(points=POINTS, wanted=st.lists(st.floats(0, 1e13), min_size=1, max_size=20))
def test_a_column_of_rows_gives_what_single_rows_give(points, wanted):
    left = residuals((points[0],), points[1])
    whole = left.factor(np.array(wanted))
    single = [left.factor(np.array([one]))[0] for one in wanted]
    assert whole == pytest.approx(single, rel=1e-12)


@given(points=POINTS, scale=st.floats(0.1, 10), size=st.floats(1, 1e13))
def test_all_ratios_scaled_scale_the_factor(points, scale, size):
    sizes, ratios = points
    wanted = np.array([size])
    before = residuals((sizes,), ratios).factor(wanted)
    after = residuals((sizes,), scale * ratios).factor(wanted)
    assert after == pytest.approx(scale * before, rel=1e-6)


def test_the_order_of_points_does_not_matter():
    turned = residuals((SIZES[::-1],), RATIOS[::-1])
    wanted = np.geomspace(1, 1e9, 30)
    assert turned.factor(wanted) == pytest.approx(residuals((SIZES,), RATIOS).factor(wanted))


def test_sizes_of_several_shapes_are_broadcast():
    left = residuals((SIZES, SIZES), RATIOS)
    table = left.factor(SIZES[:, None], np.array([[1e3, 1e6]]))
    assert table.shape == (4, 2)
    assert table[2, 1] == pytest.approx(left.factor(SIZES[2], np.array(1e6)))
    assert left.factor(np.array(5.0), np.array(7.0)).shape == ()


def test_nearer_points_count_more():
    left = residuals((SEPARATE,), np.array([2.0, 0.5]), level=0.0)
    along = left.factor(np.geomspace(*SEPARATE, 40))
    assert (np.diff(along) < 0).all()


def test_points_measured_twice_are_averaged_and_never_singular():
    left = residuals((np.array([1e6, 1e6]),), np.array([1.0, 4.0]), level=np.log(2))
    assert isinstance(left, Residuals)
    assert left.factor(np.array([1e6])) == pytest.approx([2.0])

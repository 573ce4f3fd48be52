"""Widths of intervals, whatever the residuals."""

from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel.validate.residuals import Miss, scale_of, student

MISSES = st.lists(
    st.builds(
        Miss,
        st.sampled_from("abc"),
        st.floats(-3, 3),
        st.sampled_from([0.25, 0.5, 1.0]),
    ),
    min_size=1,
    max_size=30,
)


@given(own=MISSES, wider=MISSES)
def test_a_regime_is_off_by_something_between_its_parent_and_its_worst_run(own, wider):
    parent = scale_of(wider)
    found = scale_of(own, parent)
    assert isfinite(found.half_width)
    most = max(abs(one.value) for one in (*own, *wider))
    assert found.log >= min(parent.log, scale_of(own).log) - 1e-9
    assert found.log <= max(parent.log, scale_of(own).log) + 1e-9
    assert scale_of(own).log <= scale_of([Miss("a", most, 1.0)]).log + 1e-9


@given(own=MISSES, wider=MISSES)
def test_neither_the_sides_nor_the_order_of_runs_matter(own, wider):
    mirrored = [Miss(one.source, -one.value, one.weight) for one in reversed(own)]
    one, other = scale_of(own, scale_of(wider)), scale_of(mirrored, scale_of(wider[::-1]))
    assert one.log == pytest.approx(other.log)
    assert one.sources == pytest.approx(other.sources)


@given(at=st.floats(0.6, 0.99), degrees=st.floats(1, 100))
def test_the_fewer_sources_the_farther_out_a_quantile_is(at, degrees):
    assert student(at, degrees) > student(at, degrees + 1) > 0

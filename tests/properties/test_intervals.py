"""Ends of intervals, whatever the residuals."""

from math import isfinite

from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel.validate.residuals import Miss, ends

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
ROUNDING = 1e-3


@given(own=MISSES, wider=MISSES)
def test_an_interval_holds_its_estimate_and_goes_no_further_than_runs_did(own, wider):
    found, values = ends(own, wider), [one.value for one in (*own, *wider)]
    assert min(*values, 0) - ROUNDING <= found.low <= 0 <= found.high
    assert found.high <= max(*values, 0) + ROUNDING
    assert all(map(isfinite, found.factors))


@given(own=MISSES, wider=MISSES)
def test_what_is_true_of_slow_runs_is_true_of_fast_ones(own, wider):
    mirrored = [[Miss(m.source, -m.value, m.weight) for m in group] for group in (own, wider)]
    one, other = ends(own, wider), ends(*mirrored)
    assert abs(one.low + other.high) <= ROUNDING
    assert abs(one.high + other.low) <= ROUNDING


@given(wider=MISSES, own=MISSES)
def test_the_order_of_runs_does_not_matter(own, wider):
    assert ends(own[::-1], wider[::-1]) == ends(own, wider)

"""The shortened run of a long pipeline against the whole run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.steady import rank_end_seconds, waves
from costmodel.timeline import StageSeconds, makespan_seconds


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 3)),
    microbatches=st.tuples(st.integers(7, 24), st.integers(0, 5)),
    seed=st.integers(0, 2**32 - 1),
    p2p=st.sampled_from([0.0, 0.01, 0.5, 3.0]),
)
def test_a_shortened_run_ends_when_the_whole_run_does(shape, microbatches, seed, p2p):
    (pp, vpp), (groups, rest) = shape, microbatches
    schedule = "interleaved" if vpp > 1 else "1f1b"
    microbatches = groups * pp + (rest % pp if vpp == 1 else 0)
    random = np.random.default_rng(seed)
    forward, backward = random.uniform(0.5, 2.0, (2, 3, pp * vpp))
    stages = StageSeconds(forward, backward, np.zeros_like(forward))
    latency = np.full(3, p2p)
    whole = makespan_seconds(waves(schedule, pp, vpp, microbatches), stages, latency)
    short = rank_end_seconds(schedule, (pp, vpp), microbatches, stages, p2p=latency)
    assert short.max(axis=1) == pytest.approx(whole, rel=1e-9)


def test_equal_stages_settle_in_the_shortest_run():
    one = np.ones((1, 8))
    stages = StageSeconds(one, 2 * one, 0 * one)
    seconds = rank_end_seconds("1f1b", (8, 1), 8000, stages, p2p=np.zeros(1))
    assert seconds.max() == pytest.approx((8000 + 7) * 3.0)

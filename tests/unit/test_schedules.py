"""Pipeline programs and their makespan."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.schedules import SCHEDULES, held_passes, program
from costmodel.timeline import makespan_seconds, waves

FORWARD, BACKWARD = 1.0, 2.0


@st.composite
def shapes(draw):
    """(name, pp, vpp, num_microbatches) the schedule executes."""
    name, pp = draw(st.sampled_from(sorted(SCHEDULES))), draw(st.integers(1, 8))
    if name == "1f1b":
        return name, pp, 1, draw(st.integers(1, 24))
    return name, pp, draw(st.integers(2, 4)), pp * draw(st.integers(1, 4))


def makespan(shape):
    name, pp, vpp, m = shape
    stages = np.ones((1, pp * vpp))
    return makespan_seconds(
        waves(name, pp, vpp, m), FORWARD * stages, BACKWARD * stages, np.zeros(1)
    )[0]


@given(shapes())
def test_every_micro_batch_runs_forward_and_backward_once_on_every_stage(shape):
    name, pp, vpp, m = shape
    ops = program(name, pp, vpp, m)
    passes = zip(ops.is_backward.ravel(), ops.stage.ravel(), ops.microbatch.ravel(), strict=True)
    expected = {(b, s, i) for b in (False, True) for s in range(pp * vpp) for i in range(m)}
    found = [(bool(b), int(s), int(i)) for b, s, i in passes]
    assert len(found) == len(expected)
    assert set(found) == expected


@given(shapes())
def test_every_rank_runs_only_its_own_stages(shape):
    name, pp, vpp, m = shape
    ops = program(name, pp, vpp, m)
    assert (ops.stage % pp == np.arange(pp)[:, None]).all()


@given(st.integers(1, 12), st.integers(1, 30))
def test_1f1b_takes_the_published_time(pp, m):
    """(m + p - 1)(F + B). Source: arXiv:2104.04473, section 2.2.1."""
    assert makespan(("1f1b", pp, 1, m)) == (m + pp - 1) * (FORWARD + BACKWARD)


@given(st.integers(2, 8), st.integers(2, 4), st.integers(1, 5))
def test_interleaving_cuts_the_bubble_by_the_virtual_stages(pp, vpp, groups):
    """m v (F + B) + (p - 1)(F + B), stages of 1 / v. Source: arXiv:2104.04473, section 2.2.2."""
    m = groups * pp
    expected = (m * vpp + pp - 1) * (FORWARD + BACKWARD)
    assert makespan(("interleaved", pp, vpp, m)) == expected


def held_along(name, pp, m, layers):
    """Layers each rank holds at its fullest moment, counted op by op."""
    ops = program(name, pp, layers.shape[1], m)
    weight = np.take_along_axis(layers, ops.stage // pp, axis=1)
    return np.cumsum(np.where(ops.is_backward, -weight, weight), axis=1).max(axis=1)


@given(shapes(), st.integers(0, 2**32 - 1))
def test_held_passes_are_the_peak_along_the_program(shape, seed):
    name, pp, vpp, m = shape
    layers = np.random.default_rng(seed).integers(0, 5, size=(pp, vpp))
    held = held_passes(name, pp, m, layers)
    np.testing.assert_array_equal((held * layers).sum(axis=1), held_along(name, pp, m, layers))


@given(shapes(), st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_a_full_pipeline_holds_no_more_with_more_micro_batches(shape, seed, more):
    name, pp, vpp, _ = shape
    full = SCHEDULES[name].rounds_to_fill * pp
    layers = np.random.default_rng(seed).integers(0, 5, size=(pp, vpp))
    np.testing.assert_array_equal(
        held_along(name, pp, full, layers), held_along(name, pp, full + more * pp, layers)
    )


@given(st.integers(1, 10), st.integers(1, 24))
def test_1f1b_holds_one_micro_batch_for_every_rank_behind_it(pp, m):
    held = held_passes("1f1b", pp, m, np.ones((pp, 1), dtype=np.int64))
    assert held[:, 0].tolist() == [min(pp - rank, m) for rank in range(pp)]


def test_messages_lengthen_the_pipeline_by_their_number_on_the_way():
    stages = np.ones((1, 4))
    ends = makespan_seconds(waves("1f1b", 4, 1, 1), stages, 2 * stages, np.array([0.5]))
    assert ends[0] == pytest.approx(4 * 3 + 6 * 0.5)

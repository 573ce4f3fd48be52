"""Pipeline programs and their makespan."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.makespans import makespan_seconds
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.layout.layout import SCHEDULE_NAMES
from trainplan.costmodel.program.held_activations import held_along
from trainplan.costmodel.program.ops import Op, RelativeSeconds, Shape, placed
from trainplan.costmodel.schedules import SCHEDULES, held_passes, program
from trainplan.costmodel.schedules.programs.zero_bubble import candidates, handcrafted, timed
from trainplan.costmodel.schedules.schedule import ALL_MICROBATCHES
from trainplan.costmodel.timeline.clock import StageSeconds, first_start_seconds
from trainplan.costmodel.timeline.cycles import rank_end_seconds, waves

FORWARD, BACKWARD = 1.0, 2.0
ZERO_BUBBLE = {"zb-1p": 1, "zb-2p": 2}
"""Micro batches each rank may hold, in pipelines of p."""
FILLING = [name for name in SCHEDULES if SCHEDULES[name].rounds_to_fill < ALL_MICROBATCHES]
"""Schedules whose ranks hold no more in longer steps."""
COUNTED = [name for name in SCHEDULES if not SCHEDULES[name].adapts]
"""Schedules of one order, whatever the durations."""
AT_MOST = {"hanayo", "chimera", "dualpipe"}
"""Those of no layout whose authors give one limit for all ranks."""
seconds = st.just(0) | st.integers(0, 30)
durations = st.builds(RelativeSeconds, seconds, seconds, seconds, seconds)


def runs(name, pp, vpp, m):
    """Does the schedule run in this shape?"""
    try:
        SCHEDULES[name].refuse(name, Shape(pp, vpp, m))
    except SpecError:
        return False
    return True


@st.composite
def shapes(draw, names=SCHEDULE_NAMES):
    """(name, pp, vpp, num_microbatches) the schedule executes."""
    name, pp = draw(st.sampled_from(sorted(names))), draw(st.integers(1, 8))
    one = SCHEDULES[name]
    vpp = draw(st.integers(one.least_vpp, min(one.most_vpp, 4)))
    sizes = [m for m in range(1, 25) if runs(name, pp, vpp, m)]
    assume(sizes)
    return name, pp, vpp, draw(st.sampled_from(sizes))


def stages(count, forward=FORWARD, backward=BACKWARD, weight=1.0):
    one = np.ones((1, count))
    return StageSeconds(forward * one, backward * one, weight * one)


def makespan(shape):
    name, pp, vpp, m = shape
    return makespan_seconds(waves(name, pp, vpp, m), stages(pp * vpp), np.zeros(1))[0]


def span(shape):
    """Longest time of a rank from its first pass to its last."""
    name, pp, vpp, m = shape
    passes, p2p = stages(pp * vpp), np.zeros(1)
    ends = rank_end_seconds(name, (pp, vpp), m, passes, p2p=p2p)
    return (ends - first_start_seconds(passes, p2p, pp)).max()


def test_every_schedule_of_a_layout_has_a_program():
    assert set(SCHEDULE_NAMES) <= set(SCHEDULES)
    assert AT_MOST.isdisjoint(SCHEDULE_NAMES)


@given(shapes(), durations)
def test_every_micro_batch_runs_every_pass_once_on_every_stage(shape, relative):
    name, pp, vpp, m = shape
    ops = program(name, pp, vpp, m, relative)
    real = ops.kind != Op.NONE
    count = np.zeros((pp * vpp, m, len(Op)), dtype=np.int64)
    np.add.at(count, (ops.stage[real], ops.microbatch[real], ops.kind[real]), 1)
    whole, split = (count[..., one] for one in (Op.WHOLE, Op.BACKWARD))
    assert (count[..., Op.FORWARD] == 1).all() and (whole + split == 1).all()
    assert (count[..., Op.WEIGHT] == split).all()
    assert split.any() == SCHEDULES[name].splits_backward


@given(shapes())
def test_every_rank_runs_only_its_own_stages(shape):
    name, pp, vpp, m = shape
    ops = program(name, pp, vpp, m)
    own = placed(SCHEDULES[name].placement, pp, vpp)
    own_op = (ops.stage[:, :, None] == own[:, None, :]).any(axis=2)
    assert own_op[ops.kind != Op.NONE].all()


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


def layers_held(name, pp, m, layers, relative=None):
    """Layers each rank holds at its fullest moment, counted op by op."""
    more = () if relative is None else (relative,)
    ops = program(name, pp, layers.shape[1], m, *more)
    return (held_along(ops, layers) * layers).sum(axis=1)


@given(shapes(COUNTED), st.integers(0, 2**32 - 1))
def test_held_passes_are_the_peak_along_the_program(shape, seed):
    name, pp, vpp, m = shape
    layers = np.random.default_rng(seed).integers(0, 5, size=(pp, vpp))
    held = (held_passes(name, m, layers) * layers).sum(axis=1)
    counted = layers_held(name, pp, m, layers)
    assert (held >= counted).all() if name in AT_MOST else (held == counted).all()


@given(shapes(ZERO_BUBBLE), durations)
def test_no_rank_holds_more_than_the_limit_of_its_schedule(shape, relative):
    name, pp, _, m = shape
    layers = np.ones((pp, 1), dtype=np.int64)
    held = held_passes(name, m, layers)
    assert (held == min(m, ZERO_BUBBLE[name] * pp)).all()
    assert (layers_held(name, pp, m, layers, relative) <= held[:, 0]).all()


@pytest.mark.parametrize(("name", "times"), ZERO_BUBBLE.items())
@pytest.mark.parametrize("pp", [2, 4, 8])
def test_a_long_pipeline_of_unequal_passes_fills_its_limit(name, times, pp):
    layers = np.ones((pp, 1), dtype=np.int64)
    held = layers_held(name, pp, 4 * pp, layers, RelativeSeconds(16, 18, 14, 1))
    assert held.max() == times * pp


@given(shapes(FILLING), st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_a_full_pipeline_holds_no_more_with_more_micro_batches(shape, seed, more):
    name, pp, vpp, _ = shape
    full = SCHEDULES[name].rounds_to_fill * pp
    layers = np.random.default_rng(seed).integers(0, 5, size=(pp, vpp))
    np.testing.assert_array_equal(
        held_passes(name, full, layers), held_passes(name, full + more * pp, layers)
    )


@given(st.integers(1, 10), st.integers(1, 24))
def test_1f1b_holds_one_micro_batch_for_every_rank_behind_it(pp, m):
    held = held_passes("1f1b", m, np.ones((pp, 1), dtype=np.int64))
    assert held[:, 0].tolist() == [min(pp - rank, m) for rank in range(pp)]


def test_messages_lengthen_the_pipeline_by_their_number_on_the_way():
    ends = makespan_seconds(waves("1f1b", 4, 1, 1), stages(4), np.array([0.5]))
    assert ends[0] == pytest.approx(4 * 3 + 6 * 0.5)


@pytest.mark.parametrize("name", ZERO_BUBBLE)
@given(st.integers(1, 8), st.integers(2, 4))
def test_a_split_backward_pass_shortens_the_pipeline_to_the_published_time(name, pp, rounds):
    """3 m + p - 1 for passes of one second. Source: arXiv:2401.10241, section 2.1, table 2."""
    m = rounds * pp
    assert makespan((name, pp, 1, m)) == 3 * m + pp - 1
    assert makespan(("1f1b", pp, 1, m)) == 3 * (m + pp - 1)


@given(st.integers(1, 8), st.integers(2, 4))
def test_twice_the_memory_leaves_no_bubble_where_ranks_end_apart(pp, rounds):
    """Source: arXiv:2401.10241, section 2.2: ZB-H2 has none for equal passes and m >= 2 p - 1."""
    m = rounds * pp
    assert span(("zb-2p", pp, 1, m)) == 3 * m
    assert span(("zb-1p", pp, 1, m)) == 3 * m + pp - 1


@pytest.mark.parametrize(("name", "times"), ZERO_BUBBLE.items())
@given(st.integers(1, 8), st.integers(1, 24), durations)
def test_the_heuristic_is_never_worse_than_the_schedule_made_by_hand(name, times, pp, m, relative):
    m = min(m, 2 * times * pp)  # it compares no longer steps
    by_hand = handcrafted(pp, m, times)
    assert timed(program(name, pp, 1, m, relative).kind.tolist(), relative) <= timed(
        by_hand, relative
    )


@given(shapes(ZERO_BUBBLE), durations)
@example(("zb-1p", 4, 1, 9), RelativeSeconds(19, 0, 23, 0))
def test_every_order_the_heuristic_compares_is_complete(shape, relative):
    name, pp, vpp, m = shape
    for order in candidates(Shape(pp, vpp, m), ZERO_BUBBLE[name] * pp, relative):
        kinds = order(m)
        counts = [[ops.count(op) for op in (Op.FORWARD, Op.BACKWARD, Op.WEIGHT)] for ops in kinds]
        assert counts == [[m, m, m]] * pp


@given(shapes(ZERO_BUBBLE), durations)
def test_the_heuristic_times_an_order_as_the_simulation_does(shape, relative):
    name, pp, vpp, m = shape
    forward, sent, weight, p2p = relative
    passes, latency = stages(pp, forward, sent + weight, weight), np.array([float(p2p)])
    ends = rank_end_seconds(name, (pp, vpp), m, passes, p2p=latency, relative=relative)
    spans = ends - first_start_seconds(passes, latency, pp)
    kinds = program(name, pp, vpp, m, relative).kind.tolist()
    assert timed(kinds, relative) == (spans.max(), ends.max())


def test_more_memory_never_takes_longer():
    relative = RelativeSeconds(30, 29, 20, 1)
    once, twice = (
        timed(program(name, 8, 1, 32, relative).kind.tolist(), relative) for name in ZERO_BUBBLE
    )
    assert twice <= once


@pytest.mark.parametrize(
    ("pp", "vpp", "m", "forward"),
    [(4, 2, 8, [11, 9, 7, 5]), (2, 2, 4, [5, 3]), (4, 3, 12, [15, 13, 11, 9])],
)
def test_interleaved_ranks_warm_up_two_passes_longer_the_further_they_are_from_the_end(
    pp, vpp, m, forward
):
    """2 (p - 1 - rank) + (v - 1) p forward passes, and the one that its first backward follows.

    Source: Narayanan et al., arXiv:2104.04473, figure 4; Megatron Core `schedules.py`.
    """
    kinds = program("interleaved", pp, vpp, m).kind
    assert (kinds != Op.FORWARD).argmax(axis=1).tolist() == forward


@pytest.mark.parametrize("pp", [1, 2, 4, 7])
def test_ranks_of_1f1b_warm_up_one_pass_longer_the_further_they_are_from_the_end(pp):
    """p - 1 - rank forward passes, and one more. Source: arXiv:2104.04473, section 2.2.1."""
    kinds = program("1f1b", pp, 1, 2 * pp).kind
    assert (kinds != Op.FORWARD).argmax(axis=1).tolist() == list(range(pp, 0, -1))

"""The shortened run of a long pipeline against the whole run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from tests.makespans import makespan_seconds
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.timeline.clock import StageSeconds
from trainplan.costmodel.timeline.cycles import rank_end_seconds, relative_seconds, units_of, waves

ADAPTING = [name for name, schedule in SCHEDULES.items() if schedule.adapts]
REPEATING = [name for name, schedule in SCHEDULES.items() if schedule.repeats]


@pytest.mark.parametrize("schedule", REPEATING)
@examples(12, by_night=30)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(0, 2)),
    microbatches=st.tuples(st.integers(7, 24), st.integers(0, 5)),
    seed=st.integers(0, 2**32 - 1),
    p2p=st.sampled_from([0.0, 0.01, 0.5, 3.0]),
)
def test_a_shortened_run_ends_when_the_whole_run_does(schedule, shape, microbatches, seed, p2p):
    (pp, more), (groups, rest) = shape, microbatches
    one = SCHEDULES[schedule]
    vpp = min(one.least_vpp + more, one.most_vpp)
    whole_groups = vpp > 1 and one.placement == "loop"
    microbatches = groups * pp + (0 if whole_groups else rest % pp)
    random = np.random.default_rng(seed)
    forward, sent, weight = random.uniform(0.5, 2.0, (3, 3, pp * vpp))
    stages = StageSeconds(forward, sent + weight, weight)
    latency = np.full(3, p2p)
    whole = makespan_seconds(waves(schedule, pp, vpp, microbatches), stages, latency)
    short = rank_end_seconds(schedule, (pp, vpp), microbatches, stages, p2p=latency)
    assert short.max(axis=1) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("schedule", ADAPTING)
@examples(4, by_night=8)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(7, 40), st.integers(0, 4)),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 0.02, 0.3]),
    p2p=st.sampled_from([0.0, 0.01, 0.2]),
)
def test_an_order_made_for_the_durations_ends_when_the_whole_one_does(
    schedule, shape, seed, spread, p2p
):
    (pp, groups, rest), vpp = shape, SCHEDULES[schedule].least_vpp
    m, random = groups * pp + rest % pp, np.random.default_rng(seed)
    passes = random.uniform(0.4, 2.0, (3, 1, 1)) * (1 + spread * random.random((3, 3, pp * vpp)))
    stages, latency = StageSeconds(passes[0], passes[1] + passes[2], passes[2]), np.full(3, p2p)
    relative = relative_seconds(stages, latency, units_of(schedule))[0]
    whole = makespan_seconds(waves(schedule, pp, vpp, m, relative), stages, latency)
    short = rank_end_seconds(schedule, (pp, vpp), m, stages, p2p=latency, relative=relative)
    assert short.max(axis=1) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("schedule", sorted({*REPEATING, *ADAPTING} - {"dualpipe-v"}))
def test_a_million_cycles_cost_what_a_few_do(schedule):
    """Stages that differ by 2 % do not settle for long; a run of all would not end here.

    Actions of several ops, as DualPipeV has, are not cut: it runs until they settle.
    """
    pp, vpp = 4, SCHEDULES[schedule].least_vpp
    passes = 1 + 0.02 * np.random.default_rng(1).random((3, 4, pp * vpp))
    stages, latency = StageSeconds(passes[0], passes[1] + passes[2], passes[2]), np.full(4, 0.1)
    relative = relative_seconds(stages, latency, units_of(schedule))[0]
    short, long, longer = (
        rank_end_seconds(schedule, (pp, vpp), pp * m, stages, p2p=latency, relative=relative)
        for m in (100_000, 1_000_000, 1_900_000)
    )
    assert longer - long == pytest.approx(long - short, rel=1e-9)


def test_groups_of_another_size_than_the_pipeline_run_whole():
    """119 micro batches on 16 ranks are 7 groups of 17; 103 would be no whole groups."""
    one = np.ones((1, 32))
    stages = StageSeconds(one, 2 * one, 0 * one)
    seconds = rank_end_seconds("interleaved", (16, 2), 119, stages, p2p=np.zeros(1))
    assert seconds.max() == makespan_seconds(waves("interleaved", 16, 2, 119), stages, np.zeros(1))


def test_equal_stages_settle_in_the_shortest_run():
    one = np.ones((1, 8))
    stages = StageSeconds(one, 2 * one, 0 * one)
    seconds = rank_end_seconds("1f1b", (8, 1), 8000, stages, p2p=np.zeros(1))
    assert seconds.max() == pytest.approx((8000 + 7) * 3.0)

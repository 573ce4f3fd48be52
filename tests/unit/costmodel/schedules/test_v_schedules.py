"""Zero-bubble schedules and schedules on a V: published times, memory, and where they run."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.actions import actions_makespan
from tests.grids import examples, some_cases
from tests.makespans import makespan_seconds
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.program.dependencies import checked, waves_of
from trainplan.costmodel.program.held_activations import held_along, peak_activations, with_copies
from trainplan.costmodel.program.ops import EQUAL, RelativeSeconds, Shape
from trainplan.costmodel.schedules import SCHEDULES, held_passes, program_for
from trainplan.costmodel.schedules.patterns.v_filler import Filler, Room, comes_to_its_end
from trainplan.costmodel.schedules.programs import controllable_memory
from trainplan.costmodel.schedules.programs.controllable_memory import (
    HALF,
    THIRD,
    half_limit,
    third_limit,
)
from trainplan.costmodel.schedules.schedule import RankSeconds, Work
from trainplan.costmodel.timeline.clock import StageSeconds, run
from trainplan.costmodel.timeline.cycles import rank_end_seconds
from trainplan.planner.runtimes.torch_schedule_csv import schedule_csv

NAMES = ("zb-h1", "zb-h2", "zb-auto", "zb-v", "v-half", "v-min", "dualpipe-v", "hanayo")
V_LIMITS = {"v-half": half_limit, "v-min": third_limit}
seconds = st.just(0) | st.integers(0, 30)
durations = st.builds(RelativeSeconds, seconds, seconds, seconds, seconds)


def passes(stages, relative):
    one = np.ones((1, stages))
    forward, backward, weight, _ = relative
    return StageSeconds(forward * one, (backward + weight) * one, weight * one)


def timed(name, shape, relative=(1, 1, 1, 0), order=None):
    """Run of equal stages; the order is made for their durations, or for others."""
    program = checked(program_for(name, shape, order or RelativeSeconds(*relative)))
    return run(program, passes(program.num_stages, relative), relative[3])


def repeats(name):
    return SCHEDULES[name].repeats


@st.composite
def shapes(draw, names=NAMES):
    """(name, shape) that runs."""
    name, pp = draw(st.sampled_from(names)), draw(st.integers(1, 8))
    one = SCHEDULES[name]
    vpp = draw(st.integers(one.least_vpp, min(one.most_vpp, 4)))
    vpp += name == "hanayo" and vpp % 2
    m = draw(st.integers(2 * pp, 4 * pp))
    return name, Shape(pp, vpp, m - m % pp if name == "zb-h1" else m)


@pytest.mark.parametrize(
    ("name", "vpp", "makespan", "span", "peaks"),
    [
        ("1f1b", 1, 33, 33, [4, 3, 2, 1]),
        ("interleaved", 2, 57, 57, [11, 9, 7, 5]),
        ("zb-h1", 1, 27, 27, [4] * 4),
        ("zb-h1", 2, 51, 51, [8] * 4),
        ("zb-h2", 1, 27, 24, [7] * 4),
        ("zb-auto", 1, 27, 27, [4] * 4),
        ("zb-v", 2, 51, 48, [8] * 4),
        ("v-half", 2, 53, 53, [6] * 4),
        ("v-min", 2, 59, 59, [4] * 4),
        ("dualpipe-v", 2, 54, 54, [9] * 4),
    ],
)
def test_equal_passes_take_the_published_time_and_memory(name, vpp, makespan, span, peaks):
    """Four ranks, eight micro batches. Sources: those of the schedules.

    DualPipeV: F of a pair is sent when the backward pass ends; sent at once, 51 seconds.
    """
    timeline = timed(name, Shape(4, vpp, 8))
    assert (timeline.makespan, timeline.max_stage_span) == (makespan, span)
    assert timeline.peak_activations.tolist() == peaks


@pytest.mark.parametrize("pp", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("times", [2, 3, 8])
@examples(2, by_night=4)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_zb_h1_waits_once_for_the_longest_of_its_ways(pp, times, forward, backward, weight):
    """m (F + B + W) + (p - 1) max(F, B, F + B - W). Source: arXiv:2401.10241, table 2; derived."""
    m, relative = times * pp, (forward, backward, weight, 0)
    wait = max(forward, backward, forward + backward - weight)
    expected = m * sum(relative) + (pp - 1) * wait
    assert timed("zb-h1", Shape(pp, 1, m), relative).makespan == expected


@pytest.mark.parametrize("pp", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("vpp", [1, 2, 3, 4])
@pytest.mark.parametrize("times", [2, 3])
def test_virtual_stages_shrink_the_bubble_of_zb_h1(pp, vpp, times):
    """m v (F + B + W) + (p - 1) F for equal passes, in the memory of p micro batches."""
    m = times * pp
    timeline = timed("zb-h1", Shape(pp, vpp, m))
    assert timeline.makespan == 3 * m * vpp + pp - 1
    assert timeline.peak_activations.tolist() == [vpp * pp] * pp


@pytest.mark.parametrize("pp", [2, 3, 5, 8, 16])
@examples(4, by_night=8)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_zb_h2_has_no_bubble_unless_weights_are_light(pp, forward, backward, weight):
    """(p - 1) (F + B - 2 W) on any rank. Source: arXiv:2401.10241, table 2."""
    m, relative = 4 * pp, (forward, backward, weight, 0)
    timeline = timed("zb-h2", Shape(pp, 1, m), relative)
    bubble = (pp - 1) * (forward + backward - 2 * weight)
    assert timeline.max_stage_span >= m * sum(relative) + max(0, bubble)
    assert timeline.peak_activations.tolist() == [2 * pp - 1] * pp
    if forward == backward == weight:
        assert timeline.max_stage_span == m * sum(relative)


@pytest.mark.parametrize("pp", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("times", [2, 3, 8])
def test_zb_v_leaves_only_the_way_to_the_last_rank(pp, times):
    """No bubble on any rank in the memory of 1F1B. Source: arXiv:2401.10241, section 6."""
    m = times * pp
    timeline = timed("zb-v", Shape(pp, 2, m))
    assert (timeline.makespan, timeline.max_stage_span) == (6 * m + pp - 1, 6 * m)
    assert timeline.peak_activations.tolist() == [2 * pp] * pp


@pytest.mark.parametrize(
    ("pp", "half", "third"),
    some_cases([(4, 5, 11), (5, 11, 15), (6, 11, 17), (8, 17, 27), (12, 29, 41), (16, 41, 59)], 3),
)
def test_less_memory_costs_no_more_time_than_published(pp, half, third):
    """Idle time of 4 p micro batches of equal passes. Source: arXiv:2405.15362, its generator."""
    for name, bubble in (("v-half", half), ("v-min", third)):
        timeline = timed(name, Shape(pp, 2, 4 * pp), order=EQUAL)
        assert timeline.makespan <= 24 * pp + bubble, name
        assert timeline.peak_activations.max() <= V_LIMITS[name](pp), name


@pytest.mark.parametrize(("name", "published"), [("v-half", 173), ("v-min", 226)])
def test_unequal_passes_take_no_longer_than_the_pattern_of_equal_ones(name, published):
    """Source: arXiv:2405.15362, its generator, passes of (3, 4, 2) seconds."""
    shape, relative = Shape(4, 2, 8), (3, 4, 2, 0)
    adapted = timed(name, shape, relative).makespan
    assert adapted <= published
    assert adapted <= timed(name, shape, relative, order=EQUAL).makespan


@examples(6, by_night=40)
@given(shapes(tuple(V_LIMITS)), durations)
def test_no_durations_make_a_rank_hold_more_than_its_limit(named, relative):
    name, shape = named
    program = checked(program_for(name, shape, relative))
    assert peak_activations(program).max() <= V_LIMITS[name](shape.pp)
    assert len(waves_of(program))


@pytest.mark.parametrize("style", [HALF, THIRD])
def test_recipes_of_a_shorter_pipeline_serve_a_longer_one(style, monkeypatch):
    pp = 20
    shape, relative = Shape(pp, 2, 4 * pp), RelativeSeconds(5, 7, 4, 1)
    few = controllable_memory.runs.__wrapped__(style, shape, relative)
    monkeypatch.setattr(controllable_memory, "MOST_RANKS", pp)
    every = controllable_memory.runs.__wrapped__(style, shape, relative)
    assert few[0][1].makespan <= 1.01 * every[0][1].makespan


@examples(4, by_night=100)
@given(shapes(tuple(V_LIMITS)), durations, st.integers(0, 2))
def test_an_order_comes_to_its_end_where_its_run_does(named, relative, less):
    name, shape = named
    style, limit = {"v-half": HALF, "v-min": THIRD}[name], V_LIMITS[name](shape.pp)
    rows = controllable_memory.runs(style, shape, relative)[0][1].rows
    again = Filler(shape, Room(limit - less, [limit] * shape.pp), relative).follow(rows)
    assert comes_to_its_end(rows, limit - less) == again.complete


@pytest.mark.parametrize("pp", some_cases(range(1, 17), 6))
def test_a_third_of_the_memory_takes_longer_than_half_of_it(pp):
    assert third_limit(pp) <= half_limit(pp) <= 2 * pp
    half, third = (timed(name, Shape(pp, 2, 2 * pp), order=EQUAL) for name in V_LIMITS)
    assert half.makespan <= third.makespan


@examples(5, by_night=60)
@given(shapes(), durations, st.integers(0, 2**32 - 1))
def test_held_passes_are_never_fewer_than_those_of_the_program(named, relative, seed):
    name, shape = named
    layers = np.random.default_rng(seed).integers(0, 5, size=(shape.pp, shape.vpp))
    program = program_for(name, shape, relative)
    found = (held_along(program, layers) * layers).sum(axis=1)
    written = (held_passes(name, shape.num_microbatches, layers) * layers).sum(axis=1)
    assert (found <= written).all()
    if not SCHEDULES[name].adapts and name != "hanayo":
        np.testing.assert_array_equal(found, written)


@examples(5, by_night=60)
@given(shapes(), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_a_full_pipeline_holds_no_more_with_more_micro_batches(named, more, seed):
    name, (pp, vpp, *_) = named
    full = SCHEDULES[name].rounds_to_fill * pp
    layers = np.random.default_rng(seed).integers(0, 5, size=(pp, vpp))
    held = [held_passes(name, m, layers) for m in (full, full + more * pp)]
    np.testing.assert_array_equal(*[(one * layers).sum(axis=1) for one in held])


@examples(6, by_night=80)
@given(shapes(), durations)
def test_no_bound_exceeds_the_simulated_time(named, relative):
    name, shape = named
    (pp, vpp, m), one = shape[:3], SCHEDULES[name]
    forward, backward, weight, p2p = map(float, relative)
    rank = np.arange(float(pp))[:, None]
    sent = backward + weight * (not one.splits_backward)
    work = RankSeconds(
        forward=np.full((pp, 1), vpp * forward),
        backward=np.full((pp, 1), vpp * (backward + weight)),
        weight=np.full((pp, 1), vpp * weight * one.splits_backward),
        reach=rank * (forward + p2p),
        home=rank * (sent + p2p),
        unsynchronised=np.array([False]),
    )
    bound = one.bound(Work(work, rank, np.array([pp]), np.array([m])))[0]
    assert bound <= timed(name, shape, relative).makespan


@pytest.mark.parametrize("relative", [EQUAL, RelativeSeconds(17, 19, 12, 3)])
@pytest.mark.parametrize(
    ("name", "vpp"), [(name, 1 if name == "zb-h2" else 2) for name in NAMES if repeats(name)]
)
@pytest.mark.parametrize("pp", [2, 4])
def test_a_long_step_is_a_short_one_and_more_of_its_steady_period(name, vpp, pp, relative):
    m = 17 * pp
    stages, p2p = passes(pp * vpp, relative), np.array([float(relative.p2p)])
    whole = makespan_seconds(waves_of(program_for(name, Shape(pp, vpp, m), relative)), stages, p2p)
    ends = rank_end_seconds(name, (pp, vpp), m, stages, p2p=p2p, relative=relative)
    assert ends.max() == pytest.approx(whole[0])


@pytest.mark.parametrize("limit", range(1, 9))
def test_zb_auto_keeps_the_stated_limit(limit):
    timelines = [timed("zb-auto", Shape(4, 1, 12, memory_limit=one)) for one in (limit, limit + 1)]
    assert timelines[0].peak_activations.max() <= limit
    assert timelines[1].makespan <= timelines[0].makespan


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_waves_shorten_a_step_of_few_micro_batches(pp):
    """Source: Liu et al., Hanayo, SC 2023, section 3: more waves, smaller bubbles."""
    fractions = [timed("hanayo", Shape(pp, vpp, pp)).bubble_fraction for vpp in (2, 4, 8)]
    plain = timed("1f1b", Shape(pp, 1, pp)).bubble_fraction
    assert fractions == sorted(fractions, reverse=True)
    assert fractions[0] < plain


def idle_units(name, pp, vpp, m):
    """Units the mean rank idles, where backward takes twice forward; stages together take 3 vpp."""
    size = vpp if name == "hanayo" else 1
    makespan = timed(name, Shape(pp, size, m)).makespan * vpp / size
    return makespan - 3 * m * vpp


@pytest.mark.grid
@pytest.mark.parametrize("pp", [2, 3, 4, 8, 12])
@pytest.mark.parametrize("vpp", [2, 4, 8])
def test_waves_that_follow_one_another_idle_about_as_long_as_one_wave(pp, vpp):
    one = idle_units("hanayo", pp, vpp, pp)
    for m in (2 * pp, 3 * pp, 6 * pp):
        assert idle_units("hanayo", pp, vpp, m) <= (1 if vpp < 8 else 1.75) * one


@pytest.mark.grid
@pytest.mark.parametrize("pp", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("vpp", [2, 4, 6, 8])
def test_waves_never_idle_longer_than_1f1b(pp, vpp):
    for m in (1, pp, pp + 1, 2 * pp - 1, 2 * pp, 3 * pp + 1, 8 * pp):
        waves, plain = (idle_units(name, pp, vpp, m) for name in ("hanayo", "1f1b"))
        assert waves <= plain + 1e-9, m


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("vpp", [2, 4, 8])
def test_waves_that_follow_one_another_hold_up_to_two_thirds_more_than_one(pp, vpp):
    for times in (1, 2, 3, 8):
        most = timed("hanayo", Shape(pp, vpp, times * pp)).peak_activations.max()
        assert most <= (pp if times == 1 else 1.7 * pp) * vpp


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_dualpipe_v_holds_one_pass_more_than_zb_v(pp):
    """2 p + 1. Source: DeepSeek-AI, DualPipe, its table of bubbles and memory."""
    assert timed("dualpipe-v", Shape(pp, 2, 3 * pp)).peak_activations.tolist() == [2 * pp + 1] * pp


@examples(5, by_night=60)
@given(shapes(("dualpipe-v", "zb-v", "v-half")), st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_a_pair_sends_both_of_its_outputs_when_both_are_made(named, seed, p2p):
    name, shape = named
    random = np.random.default_rng(seed)
    forward, backward, weight = random.integers(0, 9, (3, 1, shape.pp * shape.vpp)).astype(float)
    program = program_for(name, shape)
    rows = [row.split(",") for row in schedule_csv(program).splitlines()]
    found = run(program, StageSeconds(forward, backward + weight, weight), p2p).makespan
    assert found == actions_makespan(rows, (forward[0], backward[0], weight[0]), p2p)


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_pairs_of_dualpipe_v_cost_time_that_its_ops_alone_would_not(pp):
    paired = program_for("dualpipe-v", Shape(pp, 2, 4 * pp))
    seconds = passes(2 * pp, (2, 2, 2, 0.2))
    apart = run(replace(paired, joint=None), seconds, 0.2).makespan
    assert 1.02 < run(paired, seconds, 0.2).makespan / apart < 1.07


def test_pairs_stay_pairs_beside_copies_to_the_host():
    paired = program_for("dualpipe-v", Shape(4, 2, 8))
    copied = with_copies(paired, np.arange(8) < 4)
    seconds = StageSeconds(*(part * np.ones((1, 8)) for part in (2.0, 4.0, 2.0)))
    free = StageSeconds(seconds.forward, seconds.backward, seconds.weight, (np.zeros((1, 8)),) * 4)
    assert run(copied, free).makespan == run(paired, seconds).makespan


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("zb-h1", Shape(4, 2, 9), "equal groups of pp or more"),
        ("zb-h2", Shape(4, 1, 6), r"at least 2 \* pp - 1"),
        ("zb-h2", Shape(4, 2, 8), "change vpp"),
        ("zb-auto", Shape(4, 1, 8, memory_limit=0), "set memory_limit to 1 or more"),
        ("zb-1p", Shape(4, 1, 8, memory_limit=4), "leave it out"),
        ("zb-v", Shape(4, 1, 8), "with vpp=2"),
        ("v-min", Shape(4, 4, 8), "with vpp=2"),
        ("dualpipe-v", Shape(4, 2, 7), r"at least 2 \* pp"),
        ("hanayo", Shape(4, 3, 8), "vpp must be even"),
    ],
)
def test_a_shape_that_does_not_run_is_refused_with_what_it_needs(name, shape, says):
    with pytest.raises(SpecError, match=says):
        program_for(name, shape)

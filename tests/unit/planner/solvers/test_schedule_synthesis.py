"""Synthesised pipeline schedules: legal, in the memory, in time, and as good as known optima."""

import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.program.dependencies import checked
from trainplan.costmodel.program.held_activations import peak_activations
from trainplan.costmodel.program.ops import Shape
from trainplan.costmodel.schedules import program_for
from trainplan.costmodel.schedules.patterns.justification import justified
from trainplan.costmodel.timeline.clock import StageSeconds, run
from trainplan.planner.solvers.schedules.constraint_program import solved
from trainplan.planner.solvers.schedules.cyclic import shortest_period, steady, unrolled
from trainplan.planner.solvers.schedules.instance import common_unit, in_units, instance
from trainplan.planner.solvers.schedules.list_scheduling import list_schedule, priority_rules
from trainplan.planner.solvers.schedules.solve import Problem, synthesise


class Deadline:
    """A clock that moves only when it is read: runs that end alike on any machine."""

    def __init__(self, reads):
        self.left = reads

    def seconds_left(self):
        self.left -= 1
        return float(self.left)


class Wall:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def seconds_left(self):
        return self.end - time.monotonic()


class Never:
    def seconds_left(self):
        return float("inf")


def alike(stages, forward, backward, weight):
    ones = np.ones((1, stages))
    return StageSeconds(forward * ones, (backward + weight) * ones, weight * ones)


def problem(pp, vpp, m, durations, **rest):
    return Problem(pp, vpp, m, alike(pp * vpp, *durations), **rest)


whole = st.integers(0, 6)


@st.composite
def problems(draw, *, positive=False):
    pp, vpp, m = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    stages = pp * vpp
    parts = draw(st.lists(whole, min_size=3 * stages, max_size=3 * stages))
    forward, backward, weight = positive + np.array(parts, dtype=float).reshape(3, 1, stages)
    seconds = StageSeconds(forward + 1, backward + weight, weight)
    limit = draw(st.none() | st.integers(vpp, 2 * pp * vpp))
    placement = draw(st.sampled_from([None, "loop"] + ["v"] * (vpp % 2 == 0)))
    return Problem(pp, vpp, m, seconds, draw(whole) / 2, limit, placement)


def assert_legal(found, wanted):
    checked(found.program)
    assert (peak_activations(found.program) <= wanted.limit).all()
    timeline = run(found.program, wanted.seconds, wanted.p2p)
    assert timeline.makespan == pytest.approx(found.timeline.makespan)
    assert found.timeline.makespan >= found.lower_bound * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_without_time_there_is_a_legal_order_all_the_same(wanted):
    assert_legal(synthesise(wanted, Deadline(0)), wanted)


@settings(max_examples=30, deadline=None)
@given(problems() | problems(positive=True))
def test_rules_of_thumb_never_deadlock_and_squeezing_never_slows_down(wanted):
    of = instance(wanted, wanted.placements[-1])
    for priority in list(priority_rules(of.limit, wanted.vpp))[::9]:
        rough = of.program(list_schedule(of, priority))
        assert of.fits(checked(rough))
        dense = checked(of.program(justified(of, of.sequence(of.timeline(rough))).order))
        if min(map(min, of.durations)) > 0:  # ops that take no time may change places
            assert of.fits(dense)
            assert of.timeline(dense).makespan <= of.timeline(rough).makespan * (1 + 1e-9)


@pytest.mark.parametrize(
    ("wanted", "seconds"),
    [
        (problem(2, 2, 4, (3, 4, 2), memory_limit=4, placement="v"), 76),
        (problem(4, 1, 8, (3, 4, 2), memory_limit=4), 87),
        (problem(4, 1, 8, (1, 1, 1)), 27),
        (problem(4, 2, 8, (1, 1, 1), placement="v"), 51),
    ],
)
def test_known_optima_are_found_and_proved(wanted, seconds):
    found = synthesise(wanted, Never())
    assert_legal(found, wanted)
    assert found.timeline.makespan == pytest.approx(seconds)
    assert found.optimal


def test_the_solver_proves_what_the_bound_does_not():
    wanted = problem(2, 2, 4, (3, 4, 2), memory_limit=2, placement="v")
    found = synthesise(wanted, Never())
    assert found.optimal
    of = instance(wanted, "v")
    proof = solved(of, found.program, 0.0, Never())
    assert proof.order is None
    assert proof.bound == pytest.approx(found.timeline.makespan)


def test_a_proof_scales_with_the_unit():
    slow, fast = (
        synthesise(problem(2, 2, 3, np.array([3, 4, 2]) * unit, memory_limit=3), Never())
        for unit in (1.0, 1.3e-4)
    )
    assert fast.timeline.makespan == pytest.approx(slow.timeline.makespan * 1.3e-4)
    assert fast.optimal
    assert slow.optimal


def test_a_steady_state_repeats_within_the_memory():
    wanted = problem(3, 2, 12, (1, 1, 1), memory_limit=6, placement="v")
    of = instance(wanted, "v")
    found = steady(of, shortest_period(of), 20.0)
    assert found.offset
    sequence = unrolled(of, found)
    dense = of.program(justified(of, sequence).order)
    assert of.fits(checked(dense))
    last = max(start + of.durations[op.kind][op.stage] for op, start in found.offset.items())
    assert of.timeline(dense).makespan <= 11 * found.period + last


def test_no_steady_state_is_shorter_than_its_work():
    of = instance(problem(2, 1, 8, (1, 2, 1)), "loop")
    assert shortest_period(of) == 4
    assert steady(of, 3, 20.0).impossible


def test_a_slower_link_and_less_memory_never_help():
    base = {"placement": "v", "memory_limit": 4}
    free = synthesise(problem(2, 2, 4, (3, 4, 2), **base), Never())
    slow = synthesise(problem(2, 2, 4, (3, 4, 2), p2p=1.0, **base), Never())
    tight = synthesise(problem(2, 2, 4, (3, 4, 2), placement="v", memory_limit=3), Never())
    assert free.timeline.makespan <= slow.timeline.makespan
    assert free.timeline.makespan <= tight.timeline.makespan


def test_it_is_no_slower_than_the_schedules_that_have_a_name():
    wanted = problem(4, 1, 9, (2, 3, 1))
    found = synthesise(wanted, Deadline(200))
    for name in ("1f1b", "zb-1p"):
        named = run(program_for(name, Shape(4, 1, 9)), wanted.seconds)
        assert found.timeline.makespan <= named.makespan


def test_the_free_placement_is_as_good_as_either():
    both, loop = (
        synthesise(problem(2, 2, 4, (1, 1, 1), placement=placement), Never())
        for placement in (None, "loop")
    )
    assert both.timeline.makespan <= loop.timeline.makespan
    assert both.placement in ("loop", "v")


def test_too_little_memory_is_refused_with_what_would_do():
    with pytest.raises(SpecError, match="the smallest limit that works is 3"):
        synthesise(problem(2, 3, 4, (1, 1, 1), memory_limit=2), Never())
    assert_legal(
        synthesise(problem(2, 3, 4, (1, 1, 1), memory_limit=3), Deadline(5)),
        problem(2, 3, 4, (1, 1, 1), memory_limit=3),
    )


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (problem(2, 1, 0, (1, 1, 1)), "at least 1"),
        (Problem(2, 2, 4, alike(2, 1, 1, 1)), "durations"),
    ],
)
def test_a_problem_without_a_meaning_is_refused(broken, says):
    with pytest.raises(SpecError, match=says):
        synthesise(broken, Never())


def test_a_common_unit_is_found_where_there_is_one():
    assert common_unit([3.0, 4.0, 2.0]) == pytest.approx(1.0)
    assert common_unit([0.6, 0.9]) == pytest.approx(0.3)
    assert common_unit([1.0, 2**0.5]) is None


def test_rounded_durations_prove_nothing_but_help():
    rng = np.random.default_rng(0)
    forward, backward, weight = rng.uniform(0.8, 1.2, (3, 1, 4))
    wanted = Problem(2, 2, 4, StageSeconds(forward, backward + weight, weight), 0.0, 3, "v")
    of = instance(wanted, "v")
    units = in_units(of)
    assert not units.exact
    rough = of.program(list_schedule(of, next(priority_rules(3, 2))))
    found = solved(units.instance, rough, 0.0, Never())
    if found.order is not None:
        assert of.timeline(of.program(found.order)).makespan < of.timeline(rough).makespan * 1.1
    assert units.instance.timeline(rough).makespan >= found.bound


def test_no_solver_loads_before_it_is_needed():
    lines = (
        "import sys, trainplan.planner.solvers.schedules.solve; sys.exit('ortools' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0


def test_the_time_limit_is_kept():
    clock = Wall(1.0)
    found = synthesise(problem(4, 2, 12, (3, 4, 2), memory_limit=4, placement="v"), clock)
    assert clock.seconds_left() > -1.0
    assert not found.optimal
    assert found.gap > 0

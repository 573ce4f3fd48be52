"""Two exact solvers of stages filled with layers, against each other and against brute force."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from tests.oracles.labels import labels
from tests.properties.fillings import Deadline, Looks, every_answer, pipeline, problems
from trainplan.planner.solvers import layer_assignment as milp
from trainplan.planner.solvers.layer_assignment import allowed

SOLVERS = [milp.solve, labels.solve]
MINUTE = 60.0


def same(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def is_the_best(found, problem, answers):
    """Is it the first of all answers, or none where there is none?"""
    if answers:
        assert found.counts is not None
        assert allowed(problem, found.counts)
        assert found.value == problem.value(found.counts) == same(answers[0][0])
    else:
        assert (found.counts, found.value, found.lower_bound) == (None, np.inf, np.inf)
    assert found.proved


@examples(60, by_night=150)
@given(problems())
def test_both_solvers_find_what_brute_force_finds(problem):
    answers = every_answer(problem)
    for solve in SOLVERS:
        is_the_best(solve(problem, Deadline(MINUTE)), problem, answers)


@examples(25, by_night=60)
@given(problems(), st.sampled_from([0.5, 0.999, 1.0, 1.001, 2.0]))
def test_an_answer_is_below_the_cutoff_or_there_is_none(problem, times):
    answers = every_answer(problem)
    cutoff = times * answers[0][0] if answers else 1.0
    below = [pair for pair in answers if pair[0] < cutoff]
    for solve in SOLVERS:
        is_the_best(solve(problem, Deadline(MINUTE), cutoff), problem, below)


@examples(25, by_night=60)
@given(problems(), st.integers(1, 3))
def test_the_best_answer_left_is_found_where_better_ones_are_refused(problem, number):
    answers = every_answer(problem)
    problem = replace(problem, refused=tuple(counts for _, counts in answers[:number]))
    for solve in SOLVERS:
        is_the_best(solve(problem, Deadline(MINUTE)), problem, answers[number:])


@examples(25, by_night=60)
@given(problems(), st.integers(0, 12))
def test_out_of_time_nothing_false_is_claimed(problem, looks):
    answers = every_answer(problem)
    best = answers[0][0] if answers else np.inf
    for solve in SOLVERS:
        found = solve(problem, Looks(looks))
        assert found.lower_bound <= best * (1 + 1e-9)
        if found.counts is not None:
            assert allowed(problem, found.counts)
            assert found.value == problem.value(found.counts) >= best * (1 - 1e-9)
        assert looks > 0 or found.counts is None


@pytest.mark.parametrize(
    "problem",
    [
        pipeline(8, 61, 2, memory=0.9),
        pipeline(16, 61, 1, memory=1.4),
        pipeline(8, 30, 2, dense=3, memory=1.3),
        replace(pipeline(4, 16, 2, dense=1, memory=1.3), layers=(0, 1) * 8),
    ],
    ids=["one-kind", "one-way", "dense-first", "alternating"],
)
def test_both_solvers_agree_on_pipelines(problem):
    program, sweep = (solve(problem, Deadline(MINUTE)) for solve in SOLVERS)
    assert program.proved
    assert sweep.proved
    assert allowed(problem, program.counts)
    assert allowed(problem, sweep.counts)
    assert program.value == same(sweep.value)


@examples(10, by_night=20)
@given(problems(), st.data())
def test_more_capacity_never_hurts(problem, data):
    more = replace(problem, capacities=problem.capacities * data.draw(st.floats(1.0, 2.0)))
    for solve in SOLVERS:
        before, after = solve(problem, Deadline(MINUTE)), solve(more, Deadline(MINUTE))
        assert after.value <= before.value * (1 + 1e-9)


def test_equal_problems_have_equal_answers():
    problem = pipeline(8, 30, 2, dense=3, memory=1.3)
    for solve in SOLVERS:
        first, second = (solve(problem, Deadline(MINUTE)) for _ in range(2))
        np.testing.assert_array_equal(first.counts, second.counts)

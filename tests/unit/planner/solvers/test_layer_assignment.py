"""Solvers of stages filled with layers: a problem solved by hand, and the libraries behind them."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.oracles.labels import labels
from tests.properties.fillings import Deadline, Looks, pipeline
from trainplan.planner.solvers import layer_assignment as milp
from trainplan.planner.solvers.layer_assignment import LayerAssignment, in_order
from trainplan.planner.solvers.linear import Program

BY_HAND = LayerAssignment(
    layers=(0, 1, 1, 1, 1),
    kind_of_way=(0, 1, 1),
    costs=np.array([[[1.0, 2.0, 3.0], [0.0] * 3], [[0.0] * 3, [1.0, 2.0, 3.0]]]),
    constants=np.array([0.0, 1.5]),
    group=np.array([0, 0]),
    needs=np.array([[[0.0, 2.0, 1.0], [0.0] * 3]]),
    capacities=np.array([3.0]),
    least=np.array([1, 1]),
    most=np.array([4, 4]),
)
"""The first stage holds the dense layer, and two of the other four as one of them saves memory:
1 + 2 + 3 seconds, against 1.5 + 2 + 2 on the second. With one layer less: 1.5 + 2 + 2 + 2."""
SOLVERS = pytest.mark.parametrize("solve", [milp.solve, labels.solve])


@SOLVERS
def test_the_answer_is_the_one_found_by_hand(solve):
    found = solve(BY_HAND, Deadline(60))
    assert found.counts.tolist() == [[1, 1, 1], [0, 2, 0]]
    assert (found.value, found.lower_bound) == (6.0, 6.0)


@SOLVERS
@pytest.mark.parametrize(
    "change",
    [
        {"most": np.array([2, 2])},
        {"least": np.array([3, 3])},
        {"layers": (0, 1, 1, 2, 1)},
        {"capacities": np.array([-1.0])},
    ],
    ids=["too-many-layers", "too-few-layers", "a-kind-without-a-way", "too-little-memory"],
)
def test_where_nothing_fits_it_is_proved(solve, change):
    found = solve(replace(BY_HAND, **change), Deadline(60))
    assert found.counts is None
    assert found.lower_bound == np.inf
    assert found.proved


@SOLVERS
def test_layers_out_of_order_are_never_traded_for_time(solve):
    """Without the order, the stages would hold dense layers alone and others alone."""
    problem = replace(
        BY_HAND, layers=(0, 1, 0, 1), costs=np.array([[[0.0, 9.0, 9.0], [9.0, 0.0, 0.0]]]),
        constants=np.zeros(1), group=np.zeros(1, np.int64), capacities=np.array([99.0]),
        least=np.array([2, 2]), most=np.array([2, 2]),
    )  # fmt: skip
    found = solve(problem, Deadline(60))
    assert in_order(problem, found.counts)
    assert found.value == 18.0


@SOLVERS
def test_stopped_by_the_clock_a_solver_keeps_its_answer_and_an_honest_bound(solve):
    problem = pipeline(24, 126, 4, dense=3, memory=0.8)
    short = solve(problem, Deadline(0.7))
    assert short.lower_bound > 0
    if short.counts is not None:
        assert short.lower_bound <= short.value == problem.value(short.counts)


def test_the_labels_of_one_wide_stage_look_at_the_clock():
    """One stage of 90 layers in 7 ways has 9e8 fillings: no list of them all is made."""
    layers, ways = 90, 7
    rng = np.random.default_rng(0)
    wide = LayerAssignment(
        layers=(0,) * layers,
        kind_of_way=(0,) * ways,
        costs=rng.random((3, 1, ways)),
        constants=np.zeros(3),
        group=np.zeros(3, np.int64),
        needs=rng.random((1, 1, ways)),
        capacities=np.array([0.6 * layers]),
        least=np.array([0]),
        most=np.array([layers]),
    )
    found = labels.solve(wide, Looks(4))
    assert found.counts is None
    assert 0 < found.lower_bound < np.inf


def test_the_presolve_of_highs_loses_no_answer():
    """Minimise 2 x + 3 z where x + z >= 4.5 and z is whole: HiGHS 1.14.0 finds 15.

    Source: ERGO-Code/HiGHS pull request 2961.
    """
    program = Program()
    x, z = program.column(0, 10), program.column(0, 10, whole=True)
    program.at_most([(x, -1.0), (z, -1.0)], -4.5)
    program.minimise([(x, 2.0), (z, 3.0)])
    assert program.solve(60).values[[x, z]] == pytest.approx([4.5, 0.0])


@pytest.mark.parametrize("order", [("highs", "ortools"), ("ortools", "highs")])
def test_both_solver_libraries_run_in_one_process_in_either_order(order):
    """Two libraries called libhighs.so.1 would shut each other out: google/or-tools issue 5246."""
    code = """
import sys
from trainplan.planner.solvers.linear import Program

def highs():
    program = Program()
    program.minimise([(program.column(1, 4, whole=True), 1.0)])
    assert program.solve(60).bound == 1.0

def ortools():
    from ortools.sat.python import cp_model
    model = cp_model.CpModel()
    model.minimize(model.new_int_var(1, 4, ""))
    assert cp_model.CpSolver().solve(model) == cp_model.OPTIMAL

for name in sys.argv[1:]:
    {"highs": highs, "ortools": ortools}[name]()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *order], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_modules_of_solvers_load_no_library():
    lines = (
        "import sys; import trainplan.planner.solvers\n"
        "sys.exit(any(name in sys.modules for name in ('pulp', 'highspy', 'ortools')))"
    )
    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0

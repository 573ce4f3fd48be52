"""Stages filled with layers, proved: `pytest tests/benchmarks --benchmark-only`."""

import pytest

from tests.oracles.labels import labels
from tests.properties.fillings import Deadline, pipeline
from trainplan.planner.solvers import layer_assignment as milp

SIZES = {
    "8 stages, 61 layers, 2 ways": (pipeline(8, 61, 2, memory=0.9), 2, 5),
    "16 stages, 3 + 58 layers, 2 ways": (pipeline(16, 61, 2, dense=3, memory=1.2), 4, 20),
    "16 stages, 126 layers, 4 ways": (pipeline(16, 126, 4, memory=0.8), 10, None),
    "32 stages, 126 layers, 2 ways": (pipeline(32, 126, 2, memory=0.8), 20, 60),
    "64 stages, 126 layers, 2 ways": (pipeline(64, 126, 2, memory=0.8), 30, 60),
}
"""A problem, and seconds either solver may take on a busy machine; none where it is not meant."""


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("solver", [milp, labels], ids=["program", "labels"])
def test_fillings_are_proved(benchmark, solver, name):
    problem, program_seconds, label_seconds = SIZES[name]
    seconds = program_seconds if solver is milp else label_seconds
    if seconds is None:
        pytest.skip("labels are for one or two ways")
    found = benchmark.pedantic(lambda: solver.solve(problem, Deadline(seconds)), rounds=1)
    assert found.proved
    assert found.counts is not None

"""Schedules found and proved in a minute: `pytest tests/benchmarks --benchmark-only`."""

import time

import numpy as np
import pytest

from trainplan.costmodel.timeline.clock import StageSeconds
from trainplan.planner.solvers.schedules.solve import Problem, synthesise

SECONDS = 60.0
"""Time limit of a proof."""
PROVED = {"v-min": (2, 8, 4, 200), "v-half": (2, 8, 6, 169), "zb-h1": (1, 8, 4, 87)}
"""vpp, micro batches, memory and the optimum where F, B and W take 3, 4 and 2 on four ranks."""
LONG = {16: 400, 32: 780}
"""Micro batches of the V-Min pipeline, and seconds they may take: 25 and 24.4 for each."""


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def seconds_left(self):
        return self.end - time.monotonic()


def pipeline(vpp, m, memory):
    ones = np.ones((1, 4 * vpp))
    seconds = StageSeconds(3 * ones, 6 * ones, 2 * ones)
    return Problem(4, vpp, m, seconds, 0.0, memory, "v" if vpp > 1 else "loop")


@pytest.mark.parametrize("name", PROVED)
def test_optima_are_proved(benchmark, name):
    vpp, m, memory, optimum = PROVED[name]
    wanted = pipeline(vpp, m, memory)
    found = benchmark.pedantic(lambda: synthesise(wanted, Deadline(SECONDS)), rounds=1)
    assert found.timeline.makespan == optimum
    assert found.optimal or name == "v-half", "its proof may take longer"


@pytest.mark.parametrize("m", LONG)
def test_long_pipelines_repeat_a_good_steady_state(benchmark, m):
    wanted = pipeline(2, m, 4)
    found = benchmark.pedantic(lambda: synthesise(wanted, Deadline(SECONDS / 2)), rounds=1)
    benchmark.extra_info["seconds_per_microbatch"] = found.timeline.makespan / m
    assert found.timeline.makespan <= LONG[m]
    assert benchmark.stats.stats.max <= SECONDS / 2 + 1

"""Schedules run on torch's own pipeline runtime, and are what we say of them.

All run in one group of processes, started by the example that users run.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.program.held_activations import peak_activations
from trainplan.costmodel.program.ops import Shape
from trainplan.costmodel.schedules import SCHEDULES, program_for
from trainplan.costmodel.timeline.clock import StageSeconds, run
from trainplan.planner.runtimes.torch_schedule_csv import schedule_csv
from trainplan.planner.solvers.schedules.solve import Problem, synthesise

pytest.importorskip("torch", "2.13", reason="running schedules needs torch: run `make oracles`")
runtime = pytest.importorskip("torch.distributed.pipelining.schedules")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "run-a-schedule" / "run.py"
RANKS, MICRO_BATCHES = 4, 8
SLEEP_MS = 4
RANK = re.compile(
    r"rank \d: gradients (.*), activations predicted (.*), counted (.*), in memory (.*)"
)
STEP = re.compile(r"step measured ([\d.]+) s, simulated ([\d.]+) s")


class Now:
    """A deadline that has passed: only rules of thumb answer."""

    def seconds_left(self):
        return 0.0


@dataclass(frozen=True)
class Outcome:
    """What the example printed of one schedule."""

    gradients: list[str]
    predicted: list[float]
    counted: list[float | None]
    in_memory: list[float]
    measured_seconds: float
    simulated_seconds: float


def synthesised():
    """An order for unequal passes in less memory than any named schedule has."""
    one = np.ones((1, 2 * RANKS))
    seconds = StageSeconds(3.0 * one, 6.0 * one, 2.0 * one)
    problem = Problem(RANKS, 2, MICRO_BATCHES, seconds, memory_limit=5, placement="v")
    found = synthesise(problem, Now())
    assert found.source not in SCHEDULES
    return found.program


def named_programs():
    """Every schedule torch can run."""
    programs = {}
    for name, schedule in SCHEDULES.items():
        try:
            program = program_for(name, Shape(RANKS, schedule.least_vpp, MICRO_BATCHES))
            schedule_csv(program)
        except PlanError:
            continue
        programs[name] = program
    return programs


NAMED = named_programs()
NAMELESS = "synthesised.csv"


@pytest.fixture(scope="module")
def programs():
    """Those, and one that has no name."""
    return {NAMELESS: synthesised(), **NAMED}


def example(*arguments):
    return subprocess.run(
        [sys.executable, EXAMPLE, *arguments],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                (str(ROOT / ".editable"), os.environ.get("PYTHONPATH", ""))
            ),
        },
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def outcomes(programs, tmp_path_factory):
    """What the example says of every schedule; all run in one group of processes."""
    file = tmp_path_factory.mktemp("schedules") / NAMELESS
    file.write_text(schedule_csv(programs[NAMELESS]))
    names = [name if name != NAMELESS else file for name in programs]
    done = example(*names, "--sleep-ms", str(SLEEP_MS))
    assert done.returncode == 0, done.stdout + done.stderr
    blocks = re.split(r"^(\S+): \d+ stages, \d+ micro batches$", done.stdout, flags=re.M)[1:]
    return {name: outcome(block) for name, block in zip(blocks[::2], blocks[1::2], strict=True)}


def outcome(block):
    gradients, *counts = zip(*RANK.findall(block), strict=True)
    (step,) = STEP.findall(block)
    activations = ([None if one == "-" else float(one) for one in column] for column in counts)
    return Outcome(list(gradients), *activations, *(float(seconds) for seconds in step))


def test_known_schedules_and_a_synthesised_one_run(outcomes):
    assert {"1f1b", "interleaved", "zb-h1", "zb-v"} <= set(NAMED)
    assert set(outcomes) == {*NAMED, NAMELESS}
    assert all(len(one.predicted) == RANKS for one in outcomes.values())


@pytest.mark.parametrize("name", [NAMELESS, *NAMED])
def test_gradients_are_those_of_one_process(name, outcomes):
    assert outcomes[name].gradients == ["equal"] * RANKS


@pytest.mark.parametrize("name", [NAMELESS, *NAMED])
def test_ranks_hold_as_many_activations_as_predicted(name, programs, outcomes):
    peak = peak_activations(programs[name]).tolist()
    seen = outcomes[name]
    counts = hasattr(runtime, "analyze_pipeline_activation_liveness")  # from torch 2.15 on
    assert seen.in_memory == seen.predicted == peak
    assert seen.counted == (peak if counts else [None] * RANKS)


@pytest.mark.parametrize("name", [NAMELESS, *NAMED])
def test_no_step_is_shorter_than_the_simulated_one(name, programs, outcomes):
    one = np.full((1, programs[name].num_stages), SLEEP_MS / 1000)
    simulated = run(programs[name], StageSeconds(one, 2 * one, one)).makespan
    assert outcomes[name].simulated_seconds == pytest.approx(simulated, abs=1e-3)
    assert simulated - 1e-3 <= outcomes[name].measured_seconds


def test_an_unknown_schedule_is_refused_with_the_nearest_names():
    done = example("zb-h3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("run.py: error: unknown schedule 'zb-h3'")
    assert "'zb-h1'" in done.stderr

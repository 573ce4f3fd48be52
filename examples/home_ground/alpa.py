"""Alpa's stages on submeshes, solved as one mixed-integer program.

Alpa (alpa-projects/alpa, Apache-2.0, read at commit b8078a9; arXiv:2201.12023, section 5.1) cuts
layers into stages, each on a submesh with one of some shardings, so that all devices are used. With
c seconds of each stage for a micro batch and B micro batches, a step takes

    sum of all c + (B - 1) max of all c

Its dynamic programme is run once for every possible value of that maximum. Here a stage is a binary
column: the stages are a path from the first layer to the last, and as every layer lies in one
stage, the largest c is no less than the c of the stage that holds it, one row for each layer.

The problem is the one of its own test of the dynamic programme: costs drawn at random, memory
without limit. The sizes and the seed are read from the test.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from answers import Clock
from checkout import text_of
from numpy.typing import NDArray

from trainplan.costmodel.base.errors import SpecError
from trainplan.planner.solvers.linear import Program

FILE = "tests/pipeline_parallel/test_dynamic_programming.py"
NUMBERS = ("num_layers", "num_hosts", "num_devices_per_host", "num_micro_batches")


@dataclass(frozen=True, slots=True)
class Problem:
    """Stages that may be chosen."""

    costs: NDArray[np.float64]
    """Seconds of a stage; shape (first layer, last layer, submesh, sharding)."""
    after: NDArray[np.int64]
    """Stages that memory lets come after it, of the same shape."""
    devices: tuple[int, ...]
    """Of every submesh."""
    num_devices: int
    num_microbatches: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the answer."""

    first: int
    last: int
    submesh: int
    sharding: int


@dataclass(frozen=True, slots=True)
class Found:
    """The best stages."""

    seconds: float
    """Infinite where there are none."""
    lower_bound: float
    stages: tuple[Stage, ...]


def read(checkout: Path) -> Problem:
    """The problem of the test.

    Raises:
        SpecError: The test says no such numbers.
    """
    text = text_of(checkout, FILE)
    layers, hosts, per_host, microbatches = (_number(text, f"{name} = ") for name in NUMBERS)
    devices = tuple(2**k for k in range(per_host.bit_length())) + tuple(
        host * per_host for host in range(2, hosts + 1)
    )
    total = hosts * per_host
    shardings = 1 + sum(total % d == 0 for d in range(1, total + 1))
    draw = np.random.RandomState(_number(text, "np.random.seed("))
    costs = draw.random_sample((layers, layers, len(devices), shardings))
    after = np.full(costs.shape, layers)
    return Problem(costs, after, devices, total, microbatches)


def _number(text: str, before: str) -> int:
    found = re.search(rf"{re.escape(before)}(\d+)", text)
    if found is None:
        raise SpecError(f"{FILE}: no {before.strip(' (=')}: is this a checkout of Alpa?")
    return int(found[1])


def step_seconds(of: Problem, stages: Sequence[Stage]) -> float:
    """A step of given stages, by the formula above."""
    costs = [float(of.costs[s.first, s.last, s.submesh, s.sharding]) for s in stages]
    return sum(costs) + (of.num_microbatches - 1) * max(costs)


def solve(of: Problem, seconds: float) -> Found:
    """The best stages, as far as the seconds allow."""
    program, stages, unit = Program(), candidates(of), _unit(of)
    columns = [program.column(0, 1, whole=True) for _ in stages]
    chosen = list(zip(stages, columns, strict=True))
    largest = program.column(0, np.inf)
    for layer in range(len(of.costs)):
        here = [(s, x) for s, x in chosen if s.first <= layer <= s.last]
        program.equal([(x, 1.0) for _, x in here], 1.0)
        program.at_most([*((x, _cost(of, s) / unit) for s, x in here), (largest, -1.0)], 0.0)
    program.equal([(x, float(of.devices[s.submesh])) for s, x in chosen], float(of.num_devices))
    for stage, x in chosen:  # with a stage, only as many come after it as memory allows
        later = [(other, 1.0) for s, other in chosen if s.first > stage.last]
        room, most = int(of.after[_place(stage)]), len(of.costs) - 1 - stage.last
        if room < most:
            program.at_most([*later, (x, float(most - room))], float(most))
    sums = [(x, _cost(of, s) / unit) for s, x in chosen]
    program.minimise([*sums, (largest, of.num_microbatches - 1.0)])
    found = program.solve(Clock(seconds).seconds_left())
    if found.values is None:
        return Found(np.inf, found.bound * unit, ())
    best = tuple(s for s, x in chosen if found.values[x] > 0.5)
    value = step_seconds(of, best)
    return Found(value, value if found.ended else min(found.bound * unit, value), best)


def _unit(of: Problem) -> float:
    """Seconds of the objective's unit: a thousandth of the mean cost, far above tolerances."""
    return float(of.costs[np.isfinite(of.costs)].mean()) / 1000


def candidates(of: Problem) -> list[Stage]:
    """Stages worth a column: of shardings that allow as many stages after them, the cheapest."""
    layers, found = len(of.costs), []
    for first, last in zip(*np.triu_indices(layers), strict=True):
        for submesh in range(len(of.devices)):
            costs, room = of.costs[first, last, submesh], of.after[first, last, submesh]
            for sharding in np.flatnonzero(np.isfinite(costs) & (room >= 0)).tolist():
                better = (costs < costs[sharding]) & (room >= room[sharding])
                if not better.any():
                    found.append(Stage(int(first), int(last), submesh, sharding))
    return found


def _place(stage: Stage) -> tuple[int, int, int, int]:
    return stage.first, stage.last, stage.submesh, stage.sharding


def _cost(of: Problem, stage: Stage) -> float:
    return float(of.costs[_place(stage)])

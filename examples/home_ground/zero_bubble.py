"""Zero-bubble pipelines of one stage a rank, by our schedules and a bound that proves them.

The scheduler (sail-sg/zero-bubble-pipeline-parallelism, licence of Megatron-LM, read at commit
39f2c186; arXiv:2401.10241) orders the forward pass F, input gradient B and weight gradient W of
every micro batch on every stage, within a number k of micro batches that a stage may hold. Ranks
do not wait for one another at the end of a step, so what counts is the longest span: from the start
of a stage's first F to the end of its last W. It takes the best of eight greedy orders.

The problems are those of its own tests: stages and micro batches of `TEST_SETTINGS`, F, B and W of
one unit, messages of none. The memory is p and 2 p micro batches, which it names ZB-1p and ZB-2p.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from checkout import text_of

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.program.held_activations import peak_activations
from trainplan.costmodel.program.ops import Program, Shape
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.timeline.clock import StageSeconds, run
from trainplan.costmodel.timeline.cycles import relative_seconds

FILE = "tests/unit_tests/pipeline_parallel/test_pass.py"
SETTINGS = re.compile(r"^TEST_SETTINGS = \[(.*?)\]", re.DOTALL | re.MULTILINE)
PAIR = re.compile(r"\(\s*(\d+)\s*,\s*(\d+)\s*\)")
INSTANT = np.zeros(1)


@dataclass(frozen=True, slots=True)
class Problem:
    """Equal stages of equal passes."""

    stages: int
    microbatches: int
    memory: int
    """Micro batches that a stage may hold, from the start of F to the end of W."""
    forward: float = 1.0
    backward: float = 1.0
    weight: float = 1.0

    @property
    def passes(self) -> StageSeconds:
        """Seconds of every stage."""
        one = np.ones((1, self.stages))
        both = self.backward + self.weight
        return StageSeconds(self.forward * one, both * one, self.weight * one)

    @property
    def lower_bound(self) -> float:
        """No order has a shorter longest span.

        Source: derived; a micro batch goes from the start of its F on stage 0 to the last stage
        and back before its B on stage 0: p F + (p - 1) B. Until the first B there, stage 0 can
        run nothing but F of k micro batches, and idles for the rest; all its passes come on top.
        """
        p, m = self.stages, self.microbatches
        way = p * self.forward + (p - 1) * self.backward
        idle = max(0.0, way - min(self.memory, m) * self.forward)
        return m * (self.forward + self.backward + self.weight) + idle


@dataclass(frozen=True, slots=True)
class Found:
    """The best order."""

    span: float
    """Infinite if no schedule fits."""
    schedule: str


def read(checkout: Path) -> list[Problem]:
    """The problems of the tests, each under both memories.

    Raises:
        SpecError: The tests have no such list.
    """
    listed = SETTINGS.search(text_of(checkout, FILE))
    if listed is None:
        raise SpecError(
            f"{FILE}: no TEST_SETTINGS: is this a checkout of the zero-bubble pipeline?"
        )
    shapes = [(int(p), int(m)) for p, m in PAIR.findall(listed[1])]
    return [Problem(p, m, times * p) for p, m in shapes for times in (1, 2)]


def solve(problem: Problem) -> Found:
    """The schedule of the registry with the least span; the first that reaches the bound."""
    best, seconds = Found(np.inf, "none"), problem.passes
    for name, program in programs(problem):
        if (peak_activations(program) <= problem.memory).all():
            span = run(program, seconds, 0.0).max_stage_span
            best = min(best, Found(span, name), key=lambda found: found.span)
        if best.span <= problem.lower_bound:
            break
    return best


def programs(problem: Problem) -> Iterator[tuple[str, Program]]:
    """Every schedule that runs these stages, those made for split backward passes first."""
    relative = relative_seconds(problem.passes, INSTANT)[0]
    for name in sorted(SCHEDULES, key=lambda name: not SCHEDULES[name].adapts):
        schedule = SCHEDULES[name]
        limit = problem.memory if "memory_limit" in schedule.options else None
        shape = Shape(problem.stages, 1, problem.microbatches, memory_limit=limit)
        try:
            schedule.refuse(name, shape)
            program = schedule.program(shape, relative)
        except SpecError:
            continue
        alone = program.copies == program.sequence_chunks == 1 and not program.barriers
        if alone and not program.copy_lanes and program.num_stages == problem.stages:
            yield name, program

"""What the cost model knows of one schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.program import Placement, Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.bounds import Work

ALL_MICROBATCHES = 1 << 32
"""`rounds_to_fill` of a schedule that holds every micro batch of a step, however many."""


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """Where a schedule does not run."""

    message: str
    """What it needs, and what to change; shown to the user."""
    broken: Callable[[IntColumn, IntColumn, IntColumn], BoolColumn]
    """(pp, vpp, num_microbatches) -> is the rule broken?"""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: its program, the memory it holds, its bound, and where it is legal."""

    program: Callable[[Shape, RelativeSeconds], Program]
    """Ops of every rank."""
    held: Callable[[int, IntMatrix], FloatColumn]
    """(num_microbatches, layers of each (rank, chunk)) -> passes in flight on each rank when it
    holds most layers, of the same shape."""
    bound: Callable[[Work], FloatColumn]
    """Seconds no simulated run goes below."""
    rounds_to_fill: int
    """After this many times pp micro batches no rank ever holds more.

    Source: from there on the order of each rank repeats, and so does what it holds;
    tests/unit/costmodel/schedules/test_schedules.py compares longer steps.
    """
    placement: Placement = "loop"
    """Which virtual stages share a rank."""
    least_vpp: int = 1
    most_vpp: int = 1
    """Virtual stages on one rank it runs with."""
    rules: tuple[ShapeRule, ...] = ()
    """What else it needs of pp, vpp and the number of micro batches; a stated microbatch group
    size takes their place, and the program checks it."""
    options: frozenset[str] = frozenset()
    """Fields of `Shape` beyond the first three that it reads."""
    splits_backward: bool = False
    """Weight gradients are ops of their own."""
    adapts: bool = False
    """The order depends on relative durations; otherwise the program ignores them."""
    repeats: bool = False
    """Between warm-up and drain every rank repeats the same ops, `pp` micro batches a cycle."""
    forward_first: bool = False
    """Every forward pass of a stage ends before its first backward pass begins."""
    stage_by_stage: Literal["never", "in one group", "always"] = "never"
    """Each virtual stage of a rank ends all of its backward passes before the next begins: never,
    where all micro batches of a step are one group, or always."""

    @property
    def alternates(self) -> bool:
        """Does each rank run forward and whole backward passes in turn?

        The same for every micro batch, or for every group of `pp` where a rank has several stages.
        """
        return self.repeats and not self.splits_backward

    def refuse(self, name: str, shape: Shape) -> None:
        """Check a shape.

        Raises:
            SpecError: The schedule does not run in this shape, with the rule it breaks.
        """
        pp, vpp, m = shape.pp, shape.vpp, shape.num_microbatches
        if min(pp, vpp, m, shape.sequence_chunks) < 1:
            raise SpecError("pp, vpp, num_microbatches and sequence_chunks are at least 1")
        if not self.least_vpp <= vpp <= self.most_vpp:
            raise SpecError(f"{name} runs {self.vpp_text()}, not vpp={vpp}: change vpp")
        given = {
            "microbatch_group_size": shape.microbatch_group_size is not None,
            "memory_limit": shape.memory_limit is not None,
            "sequence_chunks": shape.sequence_chunks > 1,
        }
        for option, stated in given.items():
            if stated and option not in self.options:
                raise SpecError(f"{name} has no {option}: leave it out")
        columns = np.array([pp]), np.array([vpp]), np.array([m])
        for rule in () if shape.microbatch_group_size else self.rules:
            if rule.broken(*columns).any():
                where = f"pp={pp}, vpp={vpp}, num_microbatches={m}"
                raise SpecError(f"{name} does not run with {where}: {rule.message}")

    def vpp_text(self) -> str:
        """Virtual stages it runs with, for a message."""
        if self.least_vpp == self.most_vpp:
            return f"with vpp={self.least_vpp}"
        return f"with vpp >= {self.least_vpp}"


def held_throughout(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight of a schedule that holds every micro batch. Source: that of its program."""
    return np.full(layers.shape, float(num_microbatches))

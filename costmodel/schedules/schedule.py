"""What the cost model knows of one schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costmodel.schedules.bounds import Work
from costmodel.schedules.program import IntMatrix, Program, RelativeSeconds, Shape
from costmodel.table import FloatColumn


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
    """After this many times pp micro batches no rank ever holds more. Source: derived, tested."""
    least_vpp: int = 1
    most_vpp: int = 1
    """Virtual stages on one rank it runs with."""
    splits_backward: bool = False
    """Weight gradients are ops of their own."""
    adapts: bool = False
    """The order depends on relative durations; otherwise the program ignores them."""
    repeats: bool = False
    """Between warm-up and drain every rank repeats the same ops, `pp` micro batches a cycle."""

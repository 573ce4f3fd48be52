"""One pipeline schedule on the clock: its time, its memory, and how far it is from the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.program import Op, Placement, Program, peak_activations, placed
from trainplan.costmodel.runtimes import executed_by
from trainplan.costmodel.timeline import (
    EQUALS,
    StageSeconds,
    Timeline,
    gap_fraction,
    program_lower_bound,
    reaches,
    run,
)
from trainplan.planner.runtimes import what_torch_lacks

TORCH_CSV = "torch CSV"
"""torch's pipeline runtime, loading a schedule from a file."""


def vpp_of(program: Program) -> int:
    """Virtual stages of the rank that has most, of one copy of the model."""
    return int(np.bincount(program.rank_of_stage[: program.num_stages]).max())


def peaks_of(timeline: Timeline) -> tuple[float, ...]:
    """Activations each rank holds at most, until the end of the weight gradient."""
    if timeline.program.copy_lanes:
        return tuple(timeline.peak_activations.tolist())
    return tuple(peak_activations(timeline.program).tolist())


@dataclass(frozen=True)
class Scored:
    """One schedule on the clock."""

    kind: str
    timeline: Timeline
    lower_bound: float
    """Seconds that no order of these passes on these ranks goes below, with this memory."""
    memory: int = 0
    """Activations that a rank may hold under that bound; 0: any number, some wait on the host."""
    peak_bytes: tuple[float, ...] = ()
    """Bytes of activations each rank holds at most, where those of the stages are stated."""

    @property
    def program(self) -> Program:
        """Its ops."""
        return self.timeline.program

    @property
    def makespan(self) -> float:
        """Seconds from the first op to the end of the last."""
        return self.timeline.makespan

    @property
    def gap_fraction(self) -> float:
        """By how much it is longer than the bound, at most what a better order could save."""
        return gap_fraction(self.makespan, self.lower_bound)

    @property
    def optimal(self) -> bool:
        """Is no order of these passes faster, up to rounding?"""
        return reaches(self.makespan, self.lower_bound)

    @property
    def whole(self) -> bool:
        """Are all its backward passes whole?"""
        return not (self.program.kind == Op.BACKWARD).any()

    @property
    def vpp(self) -> int:
        """Virtual stages of the rank that has most, of one copy of the model."""
        return vpp_of(self.program)

    @property
    def placement(self) -> str:
        """`loop`, `v`, or `other` for one that is neither."""
        rank = self.program.rank_of_stage[: self.program.num_stages]
        ways: Sequence[Placement] = ("loop", "v")
        home = np.tile(np.arange(self.program.pp), (self.vpp, 1))
        for way in ways:
            stages = placed(way, self.program.pp, self.vpp)
            if stages.size == len(rank) and np.array_equal(rank[stages].T, home):
                return way
        return "other"

    @cached_property
    def peaks(self) -> tuple[float, ...]:
        """Activations each rank holds at most, until the end of the weight gradient."""
        return peaks_of(self.timeline)

    @cached_property
    def peaks_at_input_grad(self) -> tuple[float, ...]:
        """As `peaks`, if the input gradient freed them."""
        if self.program.copy_lanes:
            return tuple(self.timeline.peaks(Op.BACKWARD).tolist())
        return tuple(peak_activations(self.program, at_input_grad=True).tolist())

    @cached_property
    def runs_on(self) -> tuple[str, ...]:
        """Runtimes that execute it."""
        return runs_on(self.kind, self.program)


def runs_on(kind: str, program: Program) -> tuple[str, ...]:
    """Runtimes that execute a schedule, torch's with a file of it among them."""
    named = executed_by(kind, program.pp, program.num_microbatches)
    return named if what_torch_lacks(program) else (*named, TORCH_CSV)


class HoldsTooMuchError(SpecError):
    """A schedule needs more memory than it may have."""

    def __init__(self, kind: str, most: float, limit: int) -> None:
        super().__init__(
            f"{kind} holds {most:g} activations, more than the memory limit of {limit}: raise it "
            f"to {ceil(most)}, the smallest {kind} runs with, or let --synthesise look for another"
        )
        self.needs = ceil(most)


def score(
    kind: str, program: Program, seconds: StageSeconds, p2p: float, *, memory: int | None = None
) -> Scored:
    """A program on the clock, beside what no order with the same memory can beat.

    Raises:
        SpecError: It deadlocks, needs an output that no rank makes, or holds more than `memory`.
    """
    timeline = run(program, seconds, p2p)
    most = max(peaks_of(timeline))
    if memory is not None and most > memory:
        raise HoldsTooMuchError(kind, most, memory)
    bound = program_lower_bound(program, seconds, p2p, memory)
    busiest = float(timeline.seconds[: program.pp].sum(axis=1).max())
    allowed = 0 if program.copy_lanes else memory or ceil(most)
    return Scored(kind, timeline, below(max(float(bound), busiest), timeline.makespan), allowed)


def below(bound: float, makespan: float) -> float:
    """The bound, without what rounding puts above the makespan.

    Source: a valid bound is not above a makespan that some order has, so where it is, by no more
    than EQUALS, it is rounding, and the makespan is the bound.
    """
    return makespan if makespan < bound <= makespan * EQUALS else bound

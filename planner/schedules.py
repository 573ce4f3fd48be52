"""Pipeline schedules side by side: their time, their memory, and how far each is from the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

import numpy as np

from costmodel.errors import SpecError, unknown_name
from costmodel.proof import EQUALS, gap_fraction, program_lower_bound, reaches
from costmodel.runtimes import executed_by
from costmodel.schedules import SCHEDULES
from costmodel.schedules.memory import peak_activation_bytes, peak_activations
from costmodel.schedules.offload import with_copies
from costmodel.schedules.program import (
    Op,
    Placement,
    Program,
    placed,
)
from costmodel.schedules.two_bp import split_backward
from costmodel.timeline import StageSeconds, Timeline, run
from planner.budget import Deadline
from planner.exporters.torch_schedule_csv import what_torch_lacks
from planner.pipelines import Pipeline, require_size

MOST_HINTED = 200_000
"""Ops of a program that is run again to see what would be better; some seconds."""
TORCH_CSV = "torch CSV"
"""torch's pipeline runtime, loading a schedule from a file."""
BY_SOLVER, FROM_FILE = "synthesised", "csv"
"""Kinds of schedules that are not in the registry."""


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


@dataclass(frozen=True, slots=True)
class Refused:
    """A schedule that does not run in a shape."""

    kind: str
    reason: str
    needs: int = 0
    """The memory limit it would run with; 0: something else is in the way."""
    other_vpp: bool = False
    """It runs with another number of virtual stages."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """All schedules of a shape, the fastest first."""

    schedules: tuple[Scored, ...]
    refused: tuple[Refused, ...]


def known(kind: str) -> str:
    """The name of a schedule.

    Raises:
        CatalogError: There is none of this name; the message has the nearest.
    """
    if kind not in SCHEDULES:
        raise unknown_name("schedule", kind, SCHEDULES, f"known: {', '.join(SCHEDULES)}, all")
    return kind


class HoldsTooMuchError(SpecError):
    """A schedule needs more memory than it may have."""

    def __init__(self, kind: str, most: float, limit: int) -> None:
        super().__init__(
            f"{kind} holds {most:g} activations, more than the memory limit of {limit}: raise it "
            f"to {ceil(most)}, the smallest {kind} runs with, or let --synthesise look for another"
        )
        self.needs = ceil(most)


def weighed(scored: Scored, pipeline: Pipeline) -> Scored:
    """The schedule with the bytes its ranks hold, where those of the stages are stated."""
    if not pipeline.frees_bytes:
        return scored
    if scored.program.copy_lanes:
        raise SpecError("bytes of activations are not counted under --offload: leave one out")
    peaks = peak_activation_bytes(scored.program, *np.array(pipeline.frees_bytes).T)
    return replace(scored, peak_bytes=tuple(peaks.tolist()))


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
    return Scored(kind, timeline, _below(max(float(bound), busiest), timeline.makespan), allowed)


def _below(bound: float, makespan: float) -> float:
    """The bound, without what rounding puts above the makespan. Source: derived."""
    return makespan if makespan < bound <= makespan * EQUALS else bound


def scheduled(kind: str, pipeline: Pipeline, placement: Placement | None = None) -> Scored:
    """A schedule of the registry on the clock.

    Raises:
        SpecError: It does not run in this shape, or holds more than the memory limit.
    """
    plain = plain_program(kind, pipeline, placement)
    name, program = kind + suffix(plain, pipeline), as_wanted(plain, pipeline)
    limit = pipeline.shape.memory_limit
    scored = score(name, program, pipeline.seconds, pipeline.p2p, memory=limit)
    return weighed(scored, pipeline)


def plain_program(kind: str, pipeline: Pipeline, placement: Placement | None = None) -> Program:
    """A schedule of the registry, with its own backward passes and nothing copied.

    Raises:
        SpecError: It does not run in this shape.
    """
    schedule, shape = SCHEDULES[known(kind)], require_size(pipeline.shape)
    if placement and shape.vpp > 1 and schedule.placement != placement:
        raise SpecError(
            f"{kind} places its stages in a {schedule.placement}: leave --placement out"
        )
    if "memory_limit" not in schedule.options:
        shape = shape._replace(memory_limit=None)
    schedule.refuse(kind, shape)
    return schedule.program(shape, pipeline.relative)


def as_wanted(program: Program, pipeline: Pipeline) -> Program:
    """The program with its backward passes split and its activations copied, where wanted."""
    if pipeline.splits_backward:
        program = split_backward(program, defer=False)
    if not pipeline.copied_chunks:
        return program
    copied = np.arange(program.num_stages) < pipeline.copied_chunks * program.pp
    return with_copies(program, copied)


def suffix(program: Program, pipeline: Pipeline) -> str:
    """What is appended to the name of a schedule that is not run as its runtimes run it."""
    pp, _, m, group, *_ = pipeline.shape
    changes = {
        f"+groups-of-{group}": group not in (None, pp, m // max(1, m // pp)),
        "+split-backward": pipeline.splits_backward and bool((program.kind == Op.WHOLE).any()),
        "+offload": pipeline.copied_chunks > 0,
    }
    return "".join(name for name, made in changes.items() if made)


def ranked(pipeline: Pipeline, placement: Placement | None = None) -> Ranking:
    """Every schedule of the registry, the fastest first and the leanest of equals first.

    Durations are of one virtual stage, so all of them run with the same number of these.

    Raises:
        SpecError: The pipeline is too large.
    """
    require_size(pipeline.shape)
    schedules, refused = [], []
    for kind in SCHEDULES:
        try:
            schedules.append(scheduled(kind, pipeline, placement))
        except HoldsTooMuchError as error:
            reason = f"needs --memory-limit {error.needs}"
            refused.append(Refused(kind, reason, error.needs))
        except SpecError as error:
            least, most = SCHEDULES[kind].least_vpp, SCHEDULES[kind].most_vpp
            other = not least <= pipeline.shape.vpp <= most
            refused.append(Refused(kind, str(error), other_vpp=other))
    order = sorted(schedules, key=lambda one: (one.makespan, max(one.peaks)))
    return Ranking(tuple(order), tuple(refused))


def synthesised(pipeline: Pipeline, placement: Placement | None, deadline: Deadline) -> Scored:
    """The fastest order a solver finds before the deadline.

    Raises:
        SpecError: No order fits the memory limit; the message names the smallest that works.
    """
    from planner.solvers.schedule import Problem, synthesise  # noqa: PLC0415 (solvers load slowly)

    shape = require_size(pipeline.shape)
    if shape.microbatch_group_size is not None or shape.sequence_chunks > 1:
        raise SpecError(
            "synthesis chooses its own groups and keeps sequences whole: leave "
            "--microbatch-group-size and --sequence-chunks out"
        )
    if pipeline.copied_chunks:
        raise SpecError("synthesis keeps activations on the device: leave --offload out")
    found = synthesise(
        Problem(
            shape.pp,
            shape.vpp,
            shape.num_microbatches,
            pipeline.seconds,
            pipeline.p2p,
            shape.memory_limit,
            placement,
        ),
        deadline,
    )
    bound = _below(float(found.lower_bound), found.timeline.makespan)
    allowed = shape.memory_limit or shape.pp * shape.vpp
    return weighed(Scored(BY_SOLVER, found.timeline, bound, allowed), pipeline)


def imported(program: Program, pipeline: Pipeline) -> Scored:
    """A program read from a file, on the clock.

    Raises:
        SpecError: It deadlocks or holds more than the memory limit.
    """
    program, limit = as_wanted(program, pipeline), pipeline.shape.memory_limit
    scored = score(FROM_FILE, program, pipeline.seconds, pipeline.p2p, memory=limit)
    return weighed(scored, pipeline)


def synthesises(program: Program) -> bool:
    """Does the solver know all kinds of ops of a program?"""
    whole = program.copies == 1 and program.sequence_chunks == 1
    return whole and not program.barriers and not program.copy_lanes


@dataclass(frozen=True, slots=True)
class Hint:
    """A change, and the time it gives or the least it could give."""

    change: str
    makespan: float


def better(scored: Scored, pipeline: Pipeline) -> Iterator[Hint]:
    """What would make a schedule faster: another order, split backward passes, more memory."""
    seconds, p2p, program = pipeline.seconds, pipeline.p2p, scored.program
    if program.kind.size > MOST_HINTED:
        return
    if not scored.optimal:
        solver = synthesises(program) and scored.kind != BY_SOLVER
        how = " (--synthesise looks for one)" if solver else ""
        yield Hint(f"another order{how}, at best", scored.lower_bound)
    split = split_backward(program, defer=False)
    if (program.kind == Op.WHOLE).any():
        makespan = run(split, seconds, p2p).makespan
        if makespan * EQUALS < scored.makespan:
            yield Hint("the same order with --split-backward", makespan)
    most = ceil(max(scored.peaks))
    for name, ops in (("", program), (" and split backward passes", split)):
        bound = program_lower_bound(ops, seconds, p2p, 2 * most)
        if bound * EQUALS < scored.lower_bound:
            yield Hint(f"{2 * most} activations of memory{name}, at best", bound)
            return

"""Pipeline schedules side by side: those that run in a shape, from a file, or from a solver."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from trainplan.costmodel.base import SpecError, unknown_name
from trainplan.costmodel.program import Op, Placement, Program, peak_activation_bytes, with_copies
from trainplan.costmodel.schedules import SCHEDULES, split_backward
from trainplan.costmodel.timeline import EQUALS, program_lower_bound, run
from trainplan.planner.schedules.pipelines import Pipeline, require_size
from trainplan.planner.schedules.scored import HoldsTooMuchError, Scored, below, score
from trainplan.planner.work import Deadline

MOST_HINTED = 200_000
"""Ops of a program that is run again to see what would be better; some seconds."""
BY_SOLVER, FROM_FILE = "synthesised", "csv"
"""Kinds of schedules that are not in the registry."""


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


def weighed(scored: Scored, pipeline: Pipeline) -> Scored:
    """The schedule with the bytes its ranks hold, where those of the stages are stated."""
    if not pipeline.frees_bytes:
        return scored
    if scored.program.copy_lanes:
        raise SpecError("bytes of activations are not counted under --offload: leave one out")
    peaks = peak_activation_bytes(scored.program, *np.array(pipeline.frees_bytes).T)
    return replace(scored, peak_bytes=tuple(peaks.tolist()))


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
    from trainplan.planner.solvers import Problem, synthesise  # noqa: PLC0415 (solvers load slowly)

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
    bound = below(float(found.lower_bound), found.timeline.makespan)
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

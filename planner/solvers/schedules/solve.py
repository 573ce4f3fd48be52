"""Synthesis of pipeline schedules: the best order of ops under a memory limit, and a bound.

Rules of thumb and known schedules come first; they often reach the bound. Then small pipelines go
to an exact solver, and long ones repeat the best steady state of one micro batch. Without the
constraint solver the best of the rules is the answer; the bound is the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.program import Placement, Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules import KINDS, SCHEDULES, justified
from trainplan.costmodel.timeline import EQUALS, Timeline, gap_fraction, reaches, relative_seconds
from trainplan.planner.solvers.constraint_solver import constraint_solver_is_there
from trainplan.planner.solvers.schedules.constraint_program import solved
from trainplan.planner.solvers.schedules.cyclic import steady_states, unrolled
from trainplan.planner.solvers.schedules.instance import (
    Instance,
    Problem,
    in_positive_units,
    in_units,
    instance,
    lower_bound,
)
from trainplan.planner.solvers.schedules.list_scheduling import list_schedule, priority_rules
from trainplan.planner.work import Deadline

__all__ = ["Problem", "Synthesis", "synthesise"]
RULES_SHARE = 0.2
"""Share of the time that rules of thumb may take. Source: assumed."""
OPS_PER_SHARE = 1500
"""Ops in a pipeline so long that steady states get all the time that is left. Source: assumed."""
MOST_OPS = 800
"""Ops beyond which the exact solver takes seconds to start. Source: measured,
docs/decisions/0011-schedules-by-search.md."""
JUSTIFIED = 4
"""Rough orders that are squeezed. Source: assumed."""
MOST_LISTED = 20_000
"""Ops of a pipeline beyond which rules of thumb are tried only if no schedule of the registry fits;
each takes seconds. Source: measured."""


@dataclass(frozen=True, slots=True)
class Synthesis:
    """The best order found."""

    program: Program
    timeline: Timeline
    """The program on the clock, with the durations of the problem."""
    lower_bound: float
    """Seconds no order under the memory limit goes below, in any placement tried."""
    source: str
    """Where the order comes from."""
    placement: Placement

    @property
    def gap(self) -> float:
        """Part by which a better order could be faster, at most.

        Source: no order is below the bound, so none saves more than makespan - bound:
        `gap_fraction` of the two.
        """
        return gap_fraction(self.timeline.makespan, self.lower_bound)

    @property
    def optimal(self) -> bool:
        """Is no order faster, up to rounding?"""
        return reaches(self.timeline.makespan, self.lower_bound)


@dataclass(slots=True)
class Incumbent:
    """The best order of one placement so far, and what bounds it."""

    instance: Instance
    bound: float
    timeline: Timeline | None = None
    source: str = ""

    @property
    def makespan(self) -> float:
        """Seconds of the best order; infinite without one."""
        return inf if self.timeline is None else self.timeline.makespan

    def proved(self) -> bool:
        """Is no order faster?"""
        return reaches(self.makespan, self.bound)

    def offer(self, program: Program, source: str) -> Timeline | None:
        """The program on the clock if it fits; kept if it is the best."""
        if not self.instance.fits(program):
            return None
        timeline = self.instance.timeline(program)
        if timeline.makespan < self.makespan:
            self.timeline, self.source = timeline, source
        return timeline


class DeadlineShare:
    """A part of the time left."""

    def __init__(self, deadline: Deadline, share: float) -> None:
        self.deadline = deadline
        left = deadline.seconds_left()
        self.reserved = left * (1 - share) if left < inf else 0.0

    def seconds_left(self) -> float:
        """Seconds until the part is over."""
        return self.deadline.seconds_left() - self.reserved


def synthesise(problem: Problem, deadline: Deadline) -> Synthesis:
    """The fastest order found before the deadline, and how much faster another could be.

    Raises:
        SpecError: No order fits the memory limit; the message names the smallest that works.
    """
    problem.checked()
    placed = [instance(problem, placement) for placement in problem.placements]
    searches = [Incumbent(one, lower_bound(one)) for one in placed]
    for number, best in enumerate(searches):
        _by_priority_rules(best, DeadlineShare(deadline, RULES_SHARE / (len(searches) - number)))
    ops = len(KINDS) * problem.pp * problem.vpp * problem.num_microbatches
    solvers = ((_by_period, min(0.95, ops / OPS_PER_SHARE)), (_exactly, ops <= MOST_OPS))
    for step, share in solvers if constraint_solver_is_there() else ():
        part = DeadlineShare(deadline, share)
        for number, best in enumerate(searches):
            if best.bound * EQUALS < min(one.makespan for one in searches):
                step(best, DeadlineShare(part, 1 / (len(searches) - number)))
    for best in searches:  # the rules of thumb that the first share of the time left out
        _by_priority_rules(best, deadline)
    return _answer(searches)


def _answer(searches: list[Incumbent]) -> Synthesis:
    best = min(searches, key=lambda one: one.makespan)
    assert best.timeline is not None, "the first rule of thumb always finds an order"
    timeline, bound = best.timeline, min(one.bound for one in searches)
    return Synthesis(timeline.program, timeline, bound, best.source, best.instance.placement)


def _by_priority_rules(best: Incumbent, deadline: Deadline) -> None:
    """Try the schedules of the registry and rules of thumb, and squeeze the best of them."""
    of, found = best.instance, []
    for program, source in _rough(of):
        if best.timeline is not None and (best.proved() or deadline.seconds_left() <= 0):
            return
        timeline = best.offer(program, source)
        if timeline is not None:
            found.append(timeline)
    for timeline in sorted(found, key=lambda one: one.makespan)[:JUSTIFIED]:
        if best.proved() or deadline.seconds_left() <= 0:
            return
        sequence = of.sequence(timeline)
        best.offer(of.program(justified(of, sequence).order), "squeezed")


def _rough(of: Instance) -> Iterator[tuple[Program, str]]:
    """Orders that take no solver, those that are made fastest first; one at least fits."""
    relative = relative_seconds(of.problem.seconds, np.array([of.problem.p2p]))[0]
    named = sorted(SCHEDULES, key=lambda name: SCHEDULES[name].adapts)
    fixed = [name for name in named if not SCHEDULES[name].adapts]
    fits = False
    for name in fixed:
        program = _named(name, of, relative)
        if program is not None:
            fits |= of.fits(program)
            yield program, name
    if fits and len(KINDS) * of.num_stages * of.num_microbatches > MOST_LISTED:
        return
    rules = priority_rules(of.limit, of.problem.vpp)
    yield of.program(list_schedule(of, next(rules))), "greedy"
    for name in named[len(fixed) :]:
        program = _named(name, of, relative)
        if program is not None:
            yield program, name
    for priority in rules:
        yield of.program(list_schedule(of, priority)), "greedy"


def _by_period(best: Incumbent, deadline: Deadline) -> None:
    """Repeat steady states, and squeeze what comes of it."""
    of, units = best.instance, in_positive_units(best.instance)
    if best.proved() or best.timeline is None:
        return
    longest = ceil(units.timeline(best.timeline.program).makespan / of.num_microbatches) + 1
    for found in steady_states(units, longest, deadline):
        best.offer(of.program(justified(of, unrolled(units, found)).order), "periodic")
        if best.proved():
            return


def _exactly(best: Incumbent, deadline: Deadline) -> None:
    """Ask the exact solver, starting from the best order so far."""
    of, units = best.instance, in_units(best.instance)
    if best.proved() or best.timeline is None or deadline.seconds_left() <= 0:
        return
    bound = best.bound / units.unit if units.exact else lower_bound(units.instance)
    found = solved(units.instance, best.timeline.program, bound, deadline)
    if found.order is not None:
        best.offer(of.program(found.order), "exact")
    if units.exact:
        best.bound = max(best.bound, min(found.bound * units.unit, best.makespan))


def _named(name: str, of: Instance, relative: RelativeSeconds) -> Program | None:
    """A schedule of the registry, if it has the shape and the passes of the problem.

    What a pass makes is sent at once, even where the schedule has actions of several ops.
    """
    schedule = SCHEDULES[name]
    if schedule.placement != of.placement and of.problem.vpp > 1:
        return None
    limit = of.problem.limit if "memory_limit" in schedule.options else None
    shape = Shape(of.pp, of.problem.vpp, of.num_microbatches, memory_limit=limit)
    try:
        schedule.refuse(name, shape)
        program = schedule.program(shape, relative)
    except SpecError:
        return None
    ordinary = program.copies == 1 and not program.barriers and not program.copy_lanes
    fits = ordinary and program.num_stages == of.num_stages
    return replace(program, joint=None) if fits else None

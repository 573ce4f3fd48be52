"""One pipeline to schedule: its stages on their ranks, their durations, memory and bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.program import (
    Op,
    Pass,
    Placement,
    Program,
    peak_activations,
    placed,
    waves_of,
)
from trainplan.costmodel.schedules import BACKWARD, Line
from trainplan.costmodel.timeline import (
    ScheduleLimits,
    StageSeconds,
    Timeline,
    makespan_lower_bound,
    run,
)

WORKERS = 2
"""Threads of a solver, so that equal jobs take equal time on small machines. Source: assumed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a schedule is wanted for."""

    pp: int
    vpp: int
    num_microbatches: int
    seconds: StageSeconds
    """Of one candidate; pp * vpp stages, which may differ."""
    p2p: float = 0.0
    """Seconds of a message between ranks."""
    memory_limit: int | None = None
    """Activations a rank may hold, of one micro batch through one virtual stage each, until the
    end of the weight gradient; null: pp * vpp, what 1F1B holds on its first rank."""
    placement: Placement | None = None
    """Which virtual stages share a rank; null: the best of those that fit."""

    @property
    def limit(self) -> int:
        """Activations a rank may hold."""
        return self.pp * self.vpp if self.memory_limit is None else self.memory_limit

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Placements to try; there and back again only where the way back ends on rank 0."""
        if self.placement is not None:
            return (self.placement,)
        return ("loop", "v") if self.vpp % 2 == 0 and self.pp > 1 else ("loop",)

    def checked(self) -> Problem:
        """The problem, if it can be solved.

        Raises:
            SpecError: A size is not positive, durations are missing, or no order fits the memory.
        """
        if min(self.pp, self.vpp, self.num_microbatches) < 1:
            raise SpecError("pp, vpp and num_microbatches of a pipeline are at least 1: raise them")
        stages = self.pp * self.vpp
        if self.seconds.forward.shape != (1, stages):
            raise SpecError(
                f"durations of shape {self.seconds.forward.shape} do not describe one pipeline of "
                f"{stages} stages: state one row with a duration for each of pp * vpp stages"
            )
        if self.limit < self.vpp:
            raise SpecError(
                f"memory_limit={self.limit}: no schedule fits, because the first micro batch goes "
                f"through all {self.vpp} virtual stages of a rank before its activations are "
                f"freed; the smallest limit that works is {self.vpp}"
            )
        return self


@dataclass(frozen=True)
class Instance(Line):
    """A problem with its stages placed; durations in seconds or in any other unit."""

    problem: Problem
    placement: Placement

    def timeline(self, program: Program) -> Timeline:
        """A program on the clock, with the true durations."""
        return run(program, self.problem.seconds, self.problem.p2p)

    def starts(self, timeline: Timeline) -> dict[Pass, float]:
        """When every F, B and W starts, each behind what it needs.

        Both gradients in one op count as B, then W.
        """
        found: dict[Pass, float] = {}
        ops = timeline.program
        rows, positions = np.divmod(waves_of(ops).op, ops.kind.shape[1])
        for row, at in zip(rows.tolist(), positions.tolist(), strict=True):
            kind, stage, microbatch = (
                int(matrix[row, at]) for matrix in (ops.kind, ops.stage, ops.microbatch)
            )
            op = Pass(Op(kind), stage, microbatch)
            start = float(timeline.start[row, at])
            if op.kind == Op.WHOLE:
                found[op._replace(kind=Op.BACKWARD)] = start
                op, start = op._replace(kind=Op.WEIGHT), start + self.durations[BACKWARD][op.stage]
            found[op] = start
        return found

    def sequence(self, timeline: Timeline) -> list[Pass]:
        """Every F, B and W of a program, by start; those that take no time follow their needs."""
        timed = [
            (start, op.kind, -op.stage if op.kind == BACKWARD else op.stage, op)
            for op, start in self.starts(timeline).items()
        ]
        return [op for *_, op in sorted(timed)]

    def fits(self, program: Program) -> bool:
        """Does no rank ever hold more than it may?"""
        return bool((peak_activations(program) <= self.limit).all())


def instance(problem: Problem, placement: Placement) -> Instance:
    """A problem with its stages placed, in seconds."""
    seconds = problem.seconds
    parts = seconds.forward, seconds.backward - seconds.weight, seconds.weight
    durations = tuple(tuple(np.maximum(part[0], 0.0).tolist()) for part in parts)
    stages = placed(placement, problem.pp, problem.vpp)
    return Instance(
        stages=[sorted(row) for row in stages.tolist()],
        num_microbatches=problem.num_microbatches,
        durations=durations,
        p2p=problem.p2p,
        limit=min(problem.limit, problem.vpp * problem.num_microbatches),
        problem=problem,
        placement=placement,
    )


def lower_bound(of: Instance) -> float:
    """Seconds that no order goes below. Source: as `makespan_lower_bound`."""
    problem = of.problem
    stages = placed(of.placement, problem.pp, problem.vpp)
    limits = ScheduleLimits(problem.p2p, problem.limit)
    return makespan_lower_bound(stages, problem.seconds, problem.num_microbatches, limits)


def residence(instance: Instance, stage: int) -> float:
    """From the start of a stage's forward pass to the end of its weight gradient.

    Source: without waiting, the micro batch goes to the last stage and back, through each pass and
    message once, and its weight gradient follows.
    """
    deeper = range(stage, instance.num_stages)
    forward, backward, weight = instance.durations
    hops = 2 * sum(instance.latency(s, s + 1) for s in deeper[:-1])
    return sum(forward[s] + backward[s] for s in deeper) + hops + weight[stage]


LARGEST = 64
"""Whole numbers up to here count as small. Source: assumed; a proof takes longer with larger ones,
about twice as long at 200."""
ROUGHLY = 18
"""Units of the mean F, B and W together where there is no common unit. Source: measured, as
docs/decisions/0011; finer units take longer and find the same order."""


@dataclass(frozen=True, slots=True)
class InUnits:
    """An instance whose durations are whole numbers of a unit."""

    instance: Instance
    unit: float
    """Seconds."""
    exact: bool
    """Are the durations those of the problem? Otherwise they are rounded."""


def in_units(of: Instance) -> InUnits:
    """The instance in the largest common unit of its durations, or in a rough one."""
    values = [value for row in of.durations for value in row] + [of.p2p]
    common = common_unit([value for value in values if value > 0])
    if common is not None:
        return InUnits(_divided(of, common, 0.0), common, exact=True)
    return InUnits(_divided(of, rough_unit(of), 1.0), rough_unit(of), exact=False)


def in_positive_units(of: Instance) -> Instance:
    """The instance in such a unit; what takes no time takes one, so that no two ops coincide."""
    units = in_units(of)
    return _divided(of, units.unit, 1.0)


def rough_unit(of: Instance) -> float:
    """A small part of a stage's mean passes, in seconds."""
    return sum(sum(row) for row in of.durations) / of.num_stages / ROUGHLY


def common_unit(values: list[float]) -> float | None:
    """The largest number that all values are small whole multiples of, if there is one."""
    if not values:
        return 1.0
    least, most = min(values), max(values)
    for parts in range(1, LARGEST + 1):
        unit = least / parts
        if most / unit > LARGEST + 0.5:
            return None
        if all(isclose(value / unit, round(value / unit), rel_tol=1e-9) for value in values):
            return unit
    return None


def _divided(of: Instance, unit: float, least: float) -> Instance:
    """Whole durations, of an op at `least`."""
    forward, backward, weight = (
        np.array([np.maximum(least, np.rint(np.array(row) / unit))]) for row in of.durations
    )
    seconds = StageSeconds(forward, backward + weight, weight)
    problem = replace(of.problem, seconds=seconds, p2p=float(np.rint(of.p2p / unit)))
    return instance(problem, of.placement)

"""The steady state of a long pipeline: every micro batch runs the same ops one period later.

An op of micro batch j starts at j T + q T + r, 0 <= r < T: turn q, place r in the period T. Three
things make it a schedule: inputs come before outputs; ops of a rank do not overlap modulo T; and
where a forward pass starts, the turns between F and W of the rank's stages add up to no more
activations than the rank may hold. A small model for the exact solver, whatever the number of
micro batches. Source: derived; cyclic scheduling as in Hanen and Munier, Discrete Applied
Mathematics 57, 1995.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from trainplan.costmodel.program import Pass
from trainplan.costmodel.schedules import FORWARD, KINDS, OPS, WEIGHT
from trainplan.planner.solvers.schedules.instance import WORKERS, Instance, residence
from trainplan.planner.work import Deadline

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

FIRST_MOMENT, LONGEST_MOMENT = 0.7, 120.0
"""Seconds a period is tried for, at first and at last. Source: assumed."""


class Place(NamedTuple):
    """An op of every micro batch."""

    kind: int
    stage: int


class Steady(NamedTuple):
    """A steady state."""

    period: int
    offset: dict[Place, int]
    """When the ops of micro batch 0 start; empty where none was found."""
    impossible: bool
    """Is it proved that there is none?"""


def shortest_period(of: Instance) -> int:
    """No steady state has a shorter one: the work of a rank, and how long it holds activations.

    Source: in each period a rank does its work once; by Little's law it holds residence / period
    activations in the mean, no more than `limit`, so period >= residence / limit.
    """
    periods = []
    for stages in of.stages:
        work = sum(of.durations[kind][stage] for kind in KINDS for stage in stages)
        held = sum(residence(of, stage) for stage in stages) / of.limit
        periods.append(max(work, held))
    return ceil(max(periods) - 1e-6)


def steady_states(of: Instance, known: int, deadline: Deadline) -> Iterator[Steady]:
    """Steady states of periods below `known` as they are found, each shorter than the one before.

    Every round halves the periods left open, and gives each it tries longer than the last round.
    """
    least, moment, best = shortest_period(of), FIRST_MOMENT, None
    while moment <= LONGEST_MOMENT and least < known:
        low, period = least, least if moment == FIRST_MOMENT else (least + known) // 2
        while low < known:
            seconds = min(moment, deadline.seconds_left())
            if seconds <= 0:
                return
            tried = steady(of, period, seconds, best)
            if tried.offset:
                known, best = period, tried
                yield tried
            elif tried.impossible and period == least:
                least = low = period + 1
            else:
                low = period + 1
            period = (low + known) // 2
        moment *= 3


def steady(of: Instance, period: int, seconds: float, near: Steady | None = None) -> Steady:
    """The steady state of a period in which a micro batch is through soonest.

    `near` is one of another period to start from.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415 (a solver loads when it is needed)

    model = Model(cp_model.CpModel(), of, period)
    if near is not None:
        model.hint(near)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = WORKERS
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Steady(period, {}, status == cp_model.INFEASIBLE)
    offset = {op: solver.value(start) for op, start in model.offset.items()}
    return Steady(period, offset, impossible=False)


def unrolled(of: Instance, found: Steady) -> list[Pass]:
    """Ops of all micro batches, by start."""
    starts = [
        (start + j * found.period, op.kind, op.stage if op.kind == FORWARD else -op.stage, j, op)
        for op, start in found.offset.items()
        for j in range(of.num_microbatches)
    ]
    return [Pass(OPS[op.kind], op.stage, j) for _, _, _, j, op in sorted(starts)]


class Model:
    """Variables and constraints of one period."""

    def __init__(self, model: cp_model.CpModel, of: Instance, period: int) -> None:
        self.model, self.of, self.period = model, of, period
        self.durations = [[round(value) for value in row] for row in of.durations]
        self.turns = 2 * of.limit + 2
        ops = [Place(kind, stage) for kind in KINDS for stage in range(of.num_stages)]
        self.turn = {op: model.new_int_var(0, self.turns, "") for op in ops}
        self.rest = {op: model.new_int_var(0, period - 1, "") for op in ops}
        self.offset = {op: self.turn[op] * period + self.rest[op] for op in ops}
        self.before: dict[tuple[Place, Place], cp_model.BoolVarT] = {}
        for op in ops:
            self._follow(op)
        model.add(self.offset[Place(FORWARD, 0)] == 0)
        for rank in range(of.pp):
            self._share(rank)
        end = model.new_int_var(0, self.turns * period, "end")
        for stage in range(of.num_stages):
            model.add(end >= self._ended(Place(WEIGHT, stage)))
        model.minimize(end)

    def hint(self, near: Steady) -> None:
        """Start from the turns and places of another period."""
        for op, offset in near.offset.items():
            turn, rest = divmod(offset, near.period)
            self.model.add_hint(self.turn[op], turn)
            self.model.add_hint(self.rest[op], min(rest, self.period - 1))

    def _ended(self, op: Place) -> cp_model.LinearExpr:
        return self.offset[op] + self.durations[op.kind][op.stage]

    def _follow(self, op: Place) -> None:
        source = self.of.source(op.kind, op.stage)
        if source is None:
            return
        latency = round(self.of.latency(op.stage, source[1]))
        self.model.add(self.offset[op] >= self._ended(Place(*source)) + latency)

    def _share(self, rank: int) -> None:
        """A rank runs one op at a time and holds no more than it may."""
        stages = self.of.stages[rank]
        ops = [Place(kind, stage) for kind in KINDS for stage in stages]
        for one, other in combinations(ops, 2):
            self._exclude(one, other)
        for chosen in stages:
            self._holds(Place(FORWARD, chosen), stages)
        lives = [self._ended(Place(WEIGHT, s)) - self.offset[Place(FORWARD, s)] for s in stages]
        self.model.add(sum(lives) <= self.of.limit * self.period)

    def _exclude(self, one: Place, other: Place) -> None:
        """Two ops of a rank do not overlap, modulo the period."""
        later = self.model.new_bool_var("")
        self.before[one, other], self.before[other, one] = ~later, later
        gap = self.rest[other] - self.rest[one] + self.period * later
        self.model.add(gap >= self.durations[one.kind][one.stage])
        self.model.add(gap <= self.period - self.durations[other.kind][other.stage])

    def _holds(self, chosen: Place, stages: Sequence[int]) -> None:
        """When a forward pass starts, the rank has room for it."""
        held: list[cp_model.LinearExprT] = []
        for stage in stages:
            forward, weight = Place(FORWARD, stage), Place(WEIGHT, stage)
            held += [self.turn[weight] - self.turn[forward], self.before[chosen, weight]]
            if forward != chosen:
                held.append(-1 * self.before[chosen, forward])
        self.model.add(sum(held) <= self.of.limit)

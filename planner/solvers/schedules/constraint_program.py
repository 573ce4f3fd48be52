"""The best order of a short pipeline, proved by a constraint solver.

Every op is an interval that starts at a whole number; intervals of a rank do not overlap; from the
start of a forward pass to the end of its weight gradient its activations fill one of the places of
the rank. Ops of a kind on a stage go in the order of micro batches: those are alike, so exchanging
two changes nothing.

Source: docs/decisions/0011-schedules-by-search.md; the solver is CP-SAT of OR-Tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from trainplan.costmodel.program import Pass, Program
from trainplan.costmodel.schedules import FORWARD, KINDS, OPS, WEIGHT, Order
from trainplan.planner.solvers.schedules.instance import WORKERS, Instance
from trainplan.planner.work import Deadline

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

STARTS_IN = 0.003
"""Seconds for each op until the solver looks at its clock. Source: measured,
docs/decisions/0011-schedules-by-search.md."""


@dataclass(frozen=True, slots=True)
class Exact:
    """What the solver found, in the unit of the durations."""

    order: Order | None
    """A better order; null if there is none or time ran out."""
    bound: float
    """No order takes less."""


def solved(of: Instance, best: Program, bound: float, deadline: Deadline) -> Exact:
    """Search an order that takes less than `best` and no less than `bound`; whole durations."""
    from ortools.sat.python import cp_model  # noqa: PLC0415 (a solver loads when it is needed)

    makespan = round(of.timeline(best).makespan)
    least = max(0, ceil(bound - 1e-6))
    if makespan <= least:
        return Exact(None, makespan)
    seconds = deadline.seconds_left() - len(KINDS) * best.passes * best.num_stages * STARTS_IN
    if seconds <= 0:
        return Exact(None, least)
    model = Model(cp_model.CpModel(), of, least, makespan - 1)
    model.hint(best)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = WORKERS
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model.model)
    if status == cp_model.INFEASIBLE:
        return Exact(None, makespan)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Exact(model.order(solver), max(float(least), solver.best_objective_bound))
    return Exact(None, max(float(least), solver.best_objective_bound))


class Model:
    """Variables and constraints of one instance."""

    def __init__(self, model: cp_model.CpModel, of: Instance, least: int, most: int) -> None:
        self.model, self.of = model, of
        self.durations = [[round(value) for value in row] for row in of.durations]
        self.end = model.new_int_var(least, most, "end")
        microbatches, stages = range(of.num_microbatches), range(of.num_stages)
        self.start = {
            Pass(OPS[kind], stage, j): model.new_int_var(0, most, "")
            for kind in KINDS
            for stage in stages
            for j in microbatches
        }
        for op in self.start:
            self._follow(op)
        for rank in range(of.pp):
            self._share(rank, most)
        model.minimize(self.end)

    def _ended(self, op: Pass) -> cp_model.LinearExpr:
        return self.start[op] + self.durations[op.kind][op.stage]

    def _follow(self, op: Pass) -> None:
        """An op follows its input, and the one of its kind before it."""
        kind, stage, microbatch = op
        source = self.of.source(kind, stage)
        if source is not None:
            before = Pass(OPS[source[0]], source[1], microbatch)
            latency = round(self.of.latency(stage, source[1]))
            self.model.add(self.start[op] >= self._ended(before) + latency)
        if microbatch > 0:
            self.model.add(self.start[op] >= self._ended(op._replace(microbatch=microbatch - 1)))
        if kind == WEIGHT:
            self.model.add(self.end >= self._ended(op))

    def _share(self, rank: int, most: int) -> None:
        """A rank runs one op at a time and holds no more than it may."""
        mine = set(self.of.stages[rank])
        ops = [op for op in self.start if op.stage in mine]
        self.model.add_no_overlap(
            self.model.new_fixed_size_interval_var(
                self.start[op], self.durations[op.kind][op.stage], ""
            )
            for op in ops
        )
        held: list[cp_model.IntervalVar] = []
        lives: list[cp_model.IntVar] = []
        for op in ops:
            if op.kind == FORWARD:
                freed = self._ended(op._replace(kind=OPS[WEIGHT]))
                size = self.model.new_int_var(0, most, "")
                lives.append(size)
                held.append(self.model.new_interval_var(self.start[op], size, freed, ""))
        self.model.add_cumulative(held, [1] * len(held), self.of.limit)
        self.model.add(sum(lives) <= self.of.limit * self.end)

    def hint(self, best: Program) -> None:
        """Start from a known order, as far as it fits."""
        timeline = self.of.timeline(best)
        for op, value in self.of.starts(timeline).items():
            self.model.add_hint(self.start[op], round(value))

    def order(self, solver: cp_model.CpSolver) -> Order:
        """The order the solver found."""
        rows: Order = []
        for stages in self.of.stages:
            mine = [op for op in self.start if op.stage in stages]
            rows.append(sorted(mine, key=lambda op: self._place(op, solver.value(self.start[op]))))
        return rows

    def _place(self, op: Pass, start: int) -> tuple[int, ...]:
        """Ops that take no time follow what they need."""
        downwards = op.stage if op.kind == FORWARD else -op.stage
        return start, start + self.durations[op.kind][op.stage], op.kind, downwards

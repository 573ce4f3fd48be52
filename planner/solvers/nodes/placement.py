"""The best order of few nodes, proved by a constraint solver.

A node is at one place; where two places of a group hold two nodes, the group is at least as slow as
the link between them. Levels stand for the distinct slowdowns: a group that is as slow as one is as
slow as all before it.

Source: docs/decisions/0011-schedules-by-search.md; the solver is CP-SAT of OR-Tools.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, floor, inf
from typing import TYPE_CHECKING

import numpy as np

from trainplan.costmodel.columns import FloatColumn, FloatMatrix, IntColumn
from trainplan.costmodel.comm import Pairs
from trainplan.costmodel.placement import NodeLinks, PlacementCosts, RankCosts
from trainplan.costmodel.step import with_overhead
from trainplan.planner.solvers.nodes.orders import CLOSE, best_of

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Expression = cp_model.LinearExpr | int

MOST_NODES = 16
"""More are placed by exchanges alone."""
UNITS = 10**7
"""Units of a whole step: seconds are whole numbers of them, rounded down."""
WORK = 3.0
"""Deterministic time of the solver, about as many seconds.

Source: `measured` on 16 nodes with random links: the gap falls little after it."""


@dataclass(frozen=True, slots=True)
class Proved:
    """What the solver found."""

    order: IntColumn
    bound_seconds: float
    """No order has a smaller step time."""


def proved_order(
    costs: PlacementCosts,
    nodes: NodeLinks,
    start: IntColumn,
    least_seconds: float,
    *,
    seconds: float = inf,
) -> Proved:
    """Search a better order than `start` for so many seconds; `least_seconds` is a known bound."""
    from ortools.sat.python import cp_model  # noqa: PLC0415 (a solver loads when it is needed)

    model = Model(cp_model.CpModel(), costs, nodes)
    model.build()
    model.hint(start)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = WORK
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.absolute_gap_limit = CLOSE * UNITS
    status = solver.solve(model.model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    bound = max(least_seconds, model.seconds(solver.best_objective_bound))
    tried = np.array([start, model.order(solver)] if found else [start])
    return Proved(best_of(costs, nodes, tried), bound)


@dataclass(slots=True)
class Model:
    """Variables and constraints of one layout on one set of nodes."""

    model: cp_model.CpModel
    costs: PlacementCosts
    nodes: NodeLinks
    unit: float = field(init=False)
    at: list[list[cp_model.IntVar]] = field(init=False)
    """Is a node at a place? By place and node."""
    known: dict[bytes, list[cp_model.IntVar]] = field(default_factory=dict)

    def build(self) -> None:
        """Minimise what an order adds to the step with equal links."""
        costs, count = self.costs, len(self.nodes.slowness)
        self.unit = costs.step_seconds / UNITS
        self.at = [[self.model.new_bool_var("") for _ in range(count)] for _ in range(count)]
        for place in range(count):
            self.model.add_exactly_one(self.at[place])
            self.model.add_exactly_one(row[place] for row in self.at)
        steady, last, path = (self.model.new_int_var(0, UNITS * 10**4, "") for _ in range(3))
        fill = []
        for rank in costs.ranks:
            fill.append(self._rank(rank, steady, last))
        for hops in costs.paths:
            crossing = [hop[None] for hop in hops if hop[0] != hop[1]]
            self.model.add(path >= sum(self._slow(hop, costs.hop_seconds) for hop in crossing))
        self.model.minimize(steady + last + path + sum(fill))

    def _rank(self, rank: RankCosts, steady: cp_model.IntVar, last: cp_model.IntVar) -> Expression:
        """Bound the slowest rank and the last traffic; what the rank adds to the fill."""
        costs = self.costs
        often = costs.microbatches - 1 / costs.vpp
        pairs = np.stack([rank.places, rank.places], axis=1)
        slowness = rank.pair_seconds * (self._levels(self.nodes.slowness) - 1)
        flags = self._flags(b"speeds" + pairs.tobytes(), pairs, np.diag(self.nodes.slowness))
        parts = [(flags, slowness)]
        for term in rank.inside:
            parts.append((self._links(term.pairs), self._at_levels(term.added_seconds)))
        behind = max(one.pair_seconds for one in costs.ranks) - rank.pair_seconds
        self.model.add(steady + ceil(often * behind / self.unit) >= self._sum(parts, often))
        early = max(costs.pipeline_seconds, *(one.end_seconds for one in costs.ranks))
        wait = ceil((early - rank.end_seconds) / self.unit)
        self.model.add(last + wait >= self._slow(rank.traffic.pairs, rank.traffic.added_seconds))
        return self._sum(parts, 1 / costs.vpp)

    def _slow(self, pairs: Pairs, added: FloatColumn) -> Expression:
        return self._sum([(self._links(pairs), self._at_levels(added))], 1.0)

    def _sum(
        self, parts: list[tuple[list[cp_model.IntVar], FloatColumn]], often: float
    ) -> Expression:
        """Units that slow groups add, rounded down at every level."""
        total: Expression = 0
        for slow, seconds in parts:
            units = [floor(often * value / self.unit) for value in seconds.tolist()]
            for flag, before, after in zip(slow, units[:-1], units[1:], strict=True):
                total = total + (after - before) * flag if after > before else total
        return total

    def _levels(self, slowdown: FloatMatrix | FloatColumn) -> FloatColumn:
        return np.unique(np.append(slowdown, 1.0))

    def _at_levels(self, added: FloatColumn) -> FloatColumn:
        return self.costs.added(added, self._levels(self.nodes.slowdown))

    def _links(self, pairs: Pairs) -> list[cp_model.IntVar]:
        return self._flags(b"links" + pairs.tobytes(), pairs, self.nodes.slowdown)

    def _flags(self, name: bytes, pairs: Pairs, slowdown: FloatMatrix) -> list[cp_model.IntVar]:
        """Is the slowest of these pairs at least as slow as each level above 1? In order."""
        if name in self.known:
            return self.known[name]
        levels = self._levels(slowdown[slowdown > 0])
        flags = [self.model.new_bool_var("") for _ in levels[1:]]
        for low, high in pairwise(flags):
            self.model.add_implication(high, low)
        codes = np.searchsorted(levels, slowdown)
        for a, b in pairs.tolist():
            for i, j in zip(*(where.tolist() for where in np.nonzero(codes)), strict=True):
                if (a == b) == (i == j):
                    both = [self.at[a][i].negated(), self.at[b][j].negated()]
                    self.model.add_bool_or([*both, flags[int(codes[i, j]) - 1]])
        self.known[name] = flags
        return flags

    def hint(self, order: IntColumn) -> None:
        """Start from a known order."""
        for place, node in enumerate(order.tolist()):
            for other, flag in enumerate(self.at[place]):
                self.model.add_hint(flag, other == node)

    def order(self, solver: cp_model.CpSolver) -> IntColumn:
        """The order the solver found."""
        return np.array([[solver.value(flag) for flag in row].index(1) for row in self.at])

    def seconds(self, units: float) -> float:
        """Step time of a value of the objective, which is rounded down."""
        costs = self.costs
        early = max(costs.pipeline_seconds, *(one.end_seconds for one in costs.ranks))
        seconds = early + max(0.0, units) * self.unit + costs.update_seconds
        return float(with_overhead(costs.machine, np.array([seconds]))[0])

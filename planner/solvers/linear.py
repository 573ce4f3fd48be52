"""Mixed-integer programs: the one place that speaks with PuLP, which has no types, and with HiGHS.

Rows and columns are numbered in the order they are made, so equal programs are solved alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Protocol

import numpy as np

from costmodel.table import FloatColumn

Terms = Sequence[tuple[int, float]]
"""Columns and their coefficients; every column once."""

TOLERANCE = 1e-6
"""By how much a row or a whole number may be missed, as HiGHS has it: with 1e-9 it called an answer
the best where another was better. Source: measured, docs/decisions/0012."""


class Expression(Protocol):
    """A sum as PuLP writes it; compared with a number it is a row."""

    def __add__(self, other: float) -> Expression: ...
    def __le__(self, other: float) -> object: ...


@dataclass(frozen=True, slots=True)
class Solution:
    """What HiGHS knows when it ends."""

    values: FloatColumn | None
    """Of every column, in the best answer found."""
    bound: float
    """No answer has a smaller objective; infinite where none exists."""
    ended: bool
    """Is the answer the best one, or is there provably none?"""


class Program:
    """Minimise a sum of columns under rows, some columns whole numbers."""

    def __init__(self) -> None:
        import pulp  # noqa: PLC0415 (a solver loads when it is needed)

        self._pulp = pulp
        self._problem = pulp.LpProblem("program", pulp.LpMinimize)
        self._columns = [self._problem.add_variable("x0", 0, 0)]
        self._problem.setObjective(pulp.LpAffineExpression({self._columns[0]: 0.0}))

    def column(self, low: float, high: float, *, whole: bool = False) -> int:
        """A new column within `low` and `high`, which may be infinite; its number."""
        number = len(self._columns)
        kind = self._pulp.LpInteger if whole else self._pulp.LpContinuous
        ends = [float(end) if isfinite(end) else None for end in (low, high)]
        self._columns.append(self._problem.add_variable(f"x{number}", *ends, cat=kind))
        return number

    def at_most(self, terms: Terms, limit: float) -> None:
        """A new row: the sum is no more than `limit`."""
        self._problem.addConstraint(self._sum(terms) <= float(limit))

    def equal(self, terms: Terms, total: float) -> None:
        """A new row: the sum is `total`."""
        self._problem.addConstraint(self._sum(terms) == float(total))

    def minimise(self, terms: Terms, below: float = inf) -> None:
        """Name the objective, once; a row keeps it at or below `below`."""
        self._problem.setObjective(self._sum(terms))
        if isfinite(below):
            self.at_most(terms, below)

    def solve(self, seconds: float) -> Solution:
        """The smallest objective, as far as the seconds allow.

        `sol_status` tells an answer that the clock stopped from the best one; `status` does not.
        Where HiGHS ran out of time, its own bound is the one that holds.
        """
        pulp, problem = self._pulp, self._problem
        limit = max(seconds, 0.0) if isfinite(seconds) else None
        options = {"mip_feasibility_tolerance": TOLERANCE, "random_seed": 0}
        problem.solve(
            pulp.HiGHS(msg=False, timeLimit=limit, gapRel=0.0, gapAbs=0.0, threads=1, **options)
        )
        status = problem.sol_status
        if status == pulp.LpSolutionInfeasible:
            return Solution(None, inf, ended=True)
        bound = problem.solverModel.getInfo().mip_dual_bound
        if status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return Solution(None, bound, ended=False)
        values = np.array([column.varValue for column in self._columns], np.float64)
        return Solution(values, bound, ended=status == pulp.LpSolutionOptimal)

    def _sum(self, terms: Terms) -> Expression:
        pairs = [(self._columns[number], float(value)) for number, value in terms]
        expression: Expression = self._pulp.LpAffineExpression(pairs)
        return expression

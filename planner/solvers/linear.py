"""Linear programs: the one place that speaks with PuLP, which has no types, and with HiGHS.

Mixed-integer programs are written row by row and go through PuLP. Small continuous ones that are
solved by the hundred are matrices and go to HiGHS as they are: writing them takes longer than
solving. Equal programs are solved alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from trainplan.costmodel.columns import FloatColumn, FloatMatrix


Terms = Sequence[tuple[int, float]]
"""Columns and their coefficients; every column once."""

TOLERANCE = 1e-6
"""By how much a row or a whole number may be missed, as HiGHS has it: with 1e-9 it called an answer
the best where another was better. Source: measured, docs/decisions/0012."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A continuous program: minimise cost . x with x >= 0 and rows . x at most `limits`."""

    cost: FloatColumn
    rows: FloatMatrix
    """Shape (row, column)."""
    limits: FloatColumn
    equal: FloatMatrix
    """Rows whose sum is one."""

    def solve(self) -> FloatColumn | None:
        """The columns of the smallest sum; None where there is none."""
        return _columns(
            *(part.tobytes() for part in (self.cost, self.rows, self.limits, self.equal))
        )


@lru_cache(maxsize=4096)
def _columns(*parts: bytes) -> FloatColumn | None:
    """As `Matrix.solve`, by the numbers of its parts: searches of like jobs ask for the same."""
    import highspy  # noqa: PLC0415 (as PuLP)
    from highspy import _Highs  # noqa: PLC0415 (as PuLP; without callbacks, which are a cycle)

    cost, upper, limits, equal = map(np.frombuffer, parts)
    rows = np.concatenate([upper, equal]).reshape(-1, len(cost))
    row, column = np.nonzero(rows)
    one = np.ones(len(rows) - len(limits))
    problem = highspy.HighsLp()
    problem.num_row_, problem.num_col_ = rows.shape
    problem.col_cost_ = cost
    problem.col_lower_ = np.zeros(len(cost))
    problem.col_upper_ = np.full(len(cost), inf)
    problem.row_lower_ = np.concatenate([np.full(len(limits), -inf), one])
    problem.row_upper_ = np.concatenate([limits, one])
    problem.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    problem.a_matrix_.start_ = np.searchsorted(row, np.arange(len(rows) + 1))
    problem.a_matrix_.index_ = column
    problem.a_matrix_.value_ = rows[row, column]
    solver = _Highs()
    solver.setOptionValue("output_flag", "false")
    solver.setOptionValue("threads", 1)
    solver.passModel(problem)
    solver.run()
    optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return np.array(solver.getSolution().col_value, np.float64) if optimal else None


def load_solvers() -> None:
    """Load the solver of small programs now: a process that has nothing to do yet may as well."""
    import highspy  # noqa: F401, PLC0415 (as PuLP)


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

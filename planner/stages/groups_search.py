"""Layouts whose pipeline ranks live in unlike node groups: a search for every order of the groups.

Each is a search as for equal nodes (`planner.stages.search`), which asks other bounds, under one
combination of settings. They are opened in turns, the one with the smallest bound first, and share
the best answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn, IntMatrix, objects
from trainplan.costmodel.layouts import LayoutTable, Rule, legal_rows
from trainplan.planner.policies import fractions_of_splits, in_parts
from trainplan.planner.stages.contexts import GroupsContext
from trainplan.planner.stages.heuristics import try_promising
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.search import UnevenSearch
from trainplan.planner.stages.solve.listed import (
    NOTHING_KNOWN,
    SplitResult,
    polished,
    with_simulated,
)
from trainplan.planner.stages.solve.spread import balanced, stages_of
from trainplan.planner.stages.solve.windows import most_in_memory
from trainplan.planner.work import ALONE, Budget, Workers, run_together

LARGEST = 4
"""Groups whose orders are all tried; of more only the order of the file and its reverse."""


@dataclass(frozen=True, slots=True)
class HeterogeneousResult:
    """What is known when the search ends."""

    layouts: tuple[tuple[float, LayoutTable], ...]
    """Layouts found, the best of each tp, cp, pp and ep with their step times, fastest first."""
    combination: int
    """Number of the one that they are under."""
    lower_bound_s: float
    """No layout of whole ranks in groups is faster."""
    num_simulated: int
    """Splits whose schedule was run."""
    complete: bool


OPENED = 240
"""Layouts opened after the first answers. Source: assumed; some seconds."""


class GroupsSearch(UnevenSearch):
    """A search under one order of the groups; `found` are the best layouts of some degrees."""

    def __init__(
        self,
        of: GroupsContext,
        rules: Sequence[Rule],
        incumbent_s: float,
        budget: Budget,
        workers: Workers = ALONE,
    ) -> None:
        grid = [rule for rule in rules if "stages" not in rule.columns]
        super().__init__(of, grid, incumbent_s, budget, workers)
        self.rules_of_splits = rules
        self.found: dict[tuple[int, ...], tuple[float, LayoutTable]] = {}

    def rows(self, table: LayoutTable) -> list[StageProblem]:
        """The layouts of a table, one by one, with the splits that rules leave."""
        rows = []
        for row in super().rows(table):
            even, uneven = self._allowed(row, np.array([row.even, _uneven(row.even)])).tolist()
            rows.append(replace(row, even_too=even, uneven_too=uneven))
        return rows

    def _allowed(self, problem: StageProblem, layers: IntMatrix) -> BoolColumn:
        """Which splits break no rule?"""
        table = problem.table.take(np.zeros(len(layers), dtype=np.int64))
        table = table.replaced(stages=objects([problem.stages(one) for one in layers.tolist()]))
        return legal_rows(self.of.job, self.rules_of_splits, table)

    def try_first(self, table: LayoutTable, *, exact: bool = True) -> None:
        """Run balanced splits, one at least whatever the time, and split what looks fast."""
        rows = self.rows(table) if len(table) else []
        for row in rows:
            if self.found and self.budget.seconds_left() <= 0:
                return
            even = not row.uneven_too
            start = [row.even] if even else stages_of(row, balanced(row, most_in_memory(row)))[:1]
            known = with_simulated(row, self.pool, np.array(start), NOTHING_KNOWN)
            self.update_incumbent(known, row)
        if self.budget.seconds_left() > 0:
            super().try_first(table, exact=exact)

    def update_incumbent(self, found: SplitResult, row: StageProblem) -> None:
        """Take note of a split, also where it is the best of its degrees alone."""
        key = tuple(int(getattr(row.table, name)[0]) for name in ("tp", "cp", "pp", "ep"))
        best = self.found.get(key, (np.inf, None))[0]
        if found.layers is not None and found.step_time_s < best:
            self.found[key] = found.step_time_s, found.of(row)
        super().update_incumbent(found, row)

    def polish(self) -> None:
        """Move layers of the best answer for as long as that makes it faster."""
        if self.table is None:
            return
        (row,) = self.rows(self.table.replaced(stages=objects([None])))
        layers = np.array([[stage.layers for stage in self.table.stages[0] or ()]])
        if row.uneven_too and row.bounds_hold:
            self.update_incumbent(polished(row, self.pool, layers, self.budget), row)


def _uneven(layers: tuple[int, ...]) -> tuple[int, ...]:
    """A split like the even one, but for one layer."""
    longest = int(np.argmax(layers))
    other = (longest + 1) % len(layers)
    step = np.zeros(len(layers), dtype=np.int64)
    step[longest], step[other] = -1, 1
    return tuple((np.array(layers) + step).tolist())


class HeterogeneousSearch:
    """One run; `run` returns what it found."""

    def __init__(
        self,
        combinations: Sequence[tuple[Context, Sequence[Rule]]],
        margin: float,
        incumbent_s: float,
        budget: Budget,
        *,
        workers: Workers = ALONE,
    ) -> None:
        self.budget, (first, _) = budget, combinations[0]
        most = max(one.memory_bytes for one in first.machine.groups) * (1 - margin)
        given = tuple(range(len(first.job.cluster.groups)))
        few = len(given) <= LARGEST
        self.orders = tuple(permutations(given)) if few else (given, given[::-1])
        self.searches = [
            GroupsSearch(
                GroupsContext(
                    *of.shared,
                    most,
                    in_parts(fractions_of_splits(of.traits, rules)),
                    order=order,
                    margin=margin,
                ),
                rules,
                incumbent_s,
                budget,
                workers,
            )
            for of, rules in combinations
            for order in self.orders
        ]

    def run(self, top: int) -> HeterogeneousResult:
        """Open layouts until none can win or the budget is spent."""
        self._begin()
        self._polish()
        most = self._expanded + OPENED
        run_together(self.searches, self.budget, stops=lambda: self._expanded >= most)
        complete = not self.budget.spent()
        self._polish()
        best = [min((s for s, _ in one.found.values()), default=np.inf) for one in self.searches]
        combination = int(np.argmin(best)) // len(self.orders)
        own = self.searches[combination * len(self.orders) :][: len(self.orders)]
        found = [pair for search in own for pair in search.found.values()]
        return HeterogeneousResult(
            tuple(_best_of_degrees(found)[:top]),
            combination,
            self.bound,
            sum(search.num_simulated for search in self.searches),
            complete,
        )

    @property
    def incumbent_s(self) -> float:
        """Step time to beat."""
        return min(search.incumbent_s for search in self.searches)

    @property
    def bound(self) -> float:
        """No layout is faster, by what is known."""
        return min(*(search.bound for search in self.searches), self.incumbent_s)

    @property
    def _expanded(self) -> int:
        """Layouts opened so far."""
        return sum(search.expanded for search in self.searches)

    def _polish(self) -> None:
        """Move layers of the best answer, while there is time."""
        if self.budget.seconds_left() > 0:
            min(self.searches, key=lambda one: (one.incumbent_s, one.table is None)).polish()

    def _begin(self) -> None:
        """First answers: nodes of every order opened, and what looks fast of them split.

        Under the first combination alone; others may win when their turn comes.
        """
        for search in self.searches[: len(self.orders)]:
            if np.isfinite(self.incumbent_s) and self.budget.seconds_left() <= 0:
                return
            search.lower(self.incumbent_s)
            if len(search.nodes.bound):
                search.step()
            try_promising(search)


def _best_of_degrees(found: Sequence[tuple[float, LayoutTable]]) -> list[tuple[float, LayoutTable]]:
    """Of layouts with their step times the fastest of each tp, cp, pp and ep, fastest first."""
    best: dict[tuple[int, ...], tuple[float, LayoutTable]] = {}
    for seconds, table in sorted(found, key=lambda pair: pair[0]):
        key = tuple(int(getattr(table, name)[0]) for name in ("tp", "cp", "pp", "ep"))
        best.setdefault(key, (seconds, table))
    return list(best.values())

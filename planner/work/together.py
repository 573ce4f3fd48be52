"""Searches that share an incumbent, a budget and a bound; tables in parts for their workers."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from trainplan.costmodel.columns import IntColumn, distinct
from trainplan.costmodel.layouts import LayoutTable
from trainplan.planner.work.budget import Budget


class Branching(Protocol):
    """A search that is opened step by step, the branch with its smallest bound first."""

    @property
    def smallest(self) -> float:
        """Smallest bound of what waits; infinite where nothing does."""

    @property
    def value(self) -> float:
        """Of its best answer, or what it has to beat; infinite where nothing is known."""

    @property
    def done(self) -> float:
        """Share of the work done, for progress alone."""

    def lower(self, value: float) -> None:
        """Drop what is no better than an answer found elsewhere."""

    def step(self) -> None:
        """Open some branches."""


Some = TypeVar("Some", bound=Branching)


def run_together(
    searches: Sequence[Some],
    budget: Budget,
    *,
    best: float = np.inf,
    stops: Callable[[], bool] = lambda: False,
) -> float:
    """Open the search with the smallest bound until none can win; the value to beat then.

    It ends before where the time is over, or something else stops it.
    """
    best = min(best, *(one.value for one in searches))
    while True:
        first = min(searches, key=lambda one: one.smallest)
        if first.smallest >= best or stops() or budget.spent():
            return best
        first.lower(best)
        if first.smallest < best:
            first.step()
        best = min(best, first.value)
        done = sum(one.done for one in searches) / len(searches)
        budget.report(done, min(best, *(one.smallest for one in searches)), best)


PRICED_AT_ONCE = 8_192
"""Rows priced at once: columns of this length stay in the processor's cache."""
PARTS_PER_WORKER = 4
"""Parts of the layouts that each worker splits, for some take longer than others."""


class AffinityPartition:
    """Gives equal pipelines always to the same worker: what it knows of them serves again.

    No answer depends on who has which rows.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._worker_of: dict[tuple[int, ...], int] = {}

    def by_worker(self, table: LayoutTable, fewest: int) -> list[IntColumn]:
        """The rows of each worker, not too many at once; of few rows, all of them together.

        No worker is given less than `fewest`.
        """
        parts = max(1, min(self._workers, len(table) // fewest))
        worker = (
            self._workers_of(table) % parts if parts > 1 else np.zeros(len(table), dtype=np.int64)
        )
        return [
            rows[start : start + PRICED_AT_ONCE]
            for rows in (np.flatnonzero(worker == one) for one in range(parts))
            for start in range(0, len(rows), PRICED_AT_ONCE)
        ]

    def interleaved(self, table: LayoutTable) -> list[IntColumn]:
        """Rows in small parts, those of the first and of the last worker in turn.

        Equal pipelines stay together, and workers that are free at once take different ones.
        """
        order = np.argsort(self._workers_of(table), kind="stable")
        parts = np.array_split(order, PARTS_PER_WORKER * self._workers)
        parts = [part for part in parts if len(part)]
        number = np.arange(len(parts))
        turns = np.argsort(np.minimum(number, number[::-1]), kind="stable")
        return [parts[i] for i in turns]

    def _workers_of(self, table: LayoutTable) -> IntColumn:
        """A worker for each row; new pipelines go to who has least of this table.

        The largest are assigned first, so that the small ones even out what differs.
        """
        columns = table.schedule, table.pp, table.vpp
        first, kind = distinct(*columns)
        kinds = list(zip(*(column[first].tolist() for column in columns), strict=True))
        rows, load = np.bincount(kind, minlength=len(kinds)), np.zeros(self._workers)
        for one, count in zip(kinds, rows.tolist(), strict=True):
            if one in self._worker_of:
                load[self._worker_of[one]] += count
        for i in np.argsort(-rows, kind="stable").tolist():
            if kinds[i] not in self._worker_of:
                self._worker_of[kinds[i]] = int(load.argmin())
                load[self._worker_of[kinds[i]]] += rows[i]
        return np.array([self._worker_of[one] for one in kinds], dtype=np.int64)[kind]


def parts_of(table: LayoutTable) -> list[LayoutTable]:
    """The table in pieces that are priced at once."""
    return table.batches(PRICED_AT_ONCE)

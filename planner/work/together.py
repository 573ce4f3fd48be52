"""Searches that share one incumbent, one budget and one smallest bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

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


def nothing_stops() -> bool:
    """Work ends with a proof or with the time."""
    return False


def run_together(
    searches: Sequence[Some],
    budget: Budget,
    *,
    best: float = np.inf,
    stops: Callable[[], bool] = nothing_stops,
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

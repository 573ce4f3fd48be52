"""Time limit and progress, made by the caller: the search itself knows no clock."""

from __future__ import annotations

from typing import Protocol


class Deadline(Protocol):
    """When a solver has to answer with what it has."""

    def seconds_left(self) -> float:
        """Seconds until then; infinite without a limit."""


class Budget(Deadline, Protocol):
    """How long a search may go on, and who wants to hear about it."""

    def spent(self) -> bool:
        """Should the search stop now and answer with what it has?"""

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        """Take note of progress: share of the work done, smallest bound left and step time so far.

        Where nothing is known the bound is 0 and the best infinite, as of many searches.
        """


class DeadlineBudget:
    """A budget that a deadline ends, and nobody listens to."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def spent(self) -> bool:
        """Is the deadline over?"""
        return self._deadline.seconds_left() <= 0

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        """Ignore it."""

    def seconds_left(self) -> float:
        """Until the deadline."""
        return self._deadline.seconds_left()


class ReservingBudget:
    """A budget that ends some seconds before another."""

    def __init__(self, whole: Budget, kept_s: float) -> None:
        self._whole, self._kept_s = whole, kept_s

    def spent(self) -> bool:
        """Is no more left than what is kept?"""
        return self._whole.spent() or self.seconds_left() <= 0

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        """Tell the other."""
        self._whole.report(done, bound_s, best_s)

    def seconds_left(self) -> float:
        """Until what is kept begins."""
        return self._whole.seconds_left() - self._kept_s


def part_of(whole: Budget, share: float) -> Budget:
    """The first part of what a time limit leaves; all where there is none."""
    left_s = whole.seconds_left()
    return ReservingBudget(whole, left_s * (1 - share)) if left_s < float("inf") else whole


class TaskBudget:
    """A budget that ends as another does, but hurries no task: each does what it would without."""

    def __init__(self, whole: Budget) -> None:
        self._whole = whole

    def spent(self) -> bool:
        """Is the other?"""
        return self._whole.spent()

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        """Tell the other."""
        self._whole.report(done, bound_s, best_s)

    def seconds_left(self) -> float:
        """No end."""
        return float("inf")


class Unlimited:
    """No limit, no listener."""

    def spent(self) -> bool:
        """Never."""
        return False

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        """Ignore it."""

    def seconds_left(self) -> float:
        """No end."""
        return float("inf")

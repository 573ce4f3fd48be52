"""Time limit, progress and who does the work, made by the caller: a search knows no clock."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar


class Deadline(Protocol):
    """When a solver has to answer with what it has."""

    def seconds_left(self) -> float:
        """Seconds until then; infinite without a limit."""


class Budget(Deadline, Protocol):
    """How long a search may go on, and who receives its progress."""

    def spent(self) -> bool:
        """Should the search stop now and answer with what it has?"""

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        """Take note of progress: share of the work done, smallest bound left and step time so far.

        Where nothing is known the bound is 0 and the best infinite, as of many searches.
        """


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


class DeadlineBudget(Unlimited):
    """A budget that a deadline ends, with no listener."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def spent(self) -> bool:
        """Is the deadline over?"""
        return self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """Until the deadline."""
        return self._deadline.seconds_left()


class TaskBudget(Unlimited):
    """A budget that ends as another does, but hurries no task: each does what it would without."""

    def __init__(self, whole: Budget) -> None:
        self._whole = whole

    def spent(self) -> bool:
        """Is the other?"""
        return self._whole.spent()

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        """Report to the other."""
        self._whole.report(done, bound_s, best_s)


class ReservingBudget(TaskBudget):
    """A budget that ends some seconds before another."""

    def __init__(self, whole: Budget, kept_s: float) -> None:
        super().__init__(whole)
        self._kept_s = kept_s

    def spent(self) -> bool:
        """Is no more left than what is kept?"""
        return self._whole.spent() or self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """Until what is kept begins."""
        return self._whole.seconds_left() - self._kept_s


def part_of(whole: Budget, share: float) -> Budget:
    """The first part of what a time limit leaves; all where there is none."""
    left_s = whole.seconds_left()
    return ReservingBudget(whole, left_s * (1 - share)) if left_s < float("inf") else whole


Result_co = TypeVar("Result_co", covariant=True)
Result = TypeVar("Result")
Item = TypeVar("Item")


class Task(Protocol[Result_co]):
    """A piece of work that needs nothing but itself, so that another process may do it."""

    def __call__(self, deadline: Deadline) -> Result_co:
        """Do it, in the time there is."""


class Workers(Protocol):
    """Who does the work, made by the caller: the search itself starts no process."""

    @property
    def parts(self) -> int:
        """Into how many parts work is best cut; no answer depends on it."""

    def run(self, tasks: Sequence[Task[Result]], deadline: Deadline) -> Iterator[Result]:
        """The results of some tasks, in their order."""

    def in_background(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Some work that may be done next to all tasks; returns how to get its result.

        Nothing it changes need be changed here.
        """

    def each(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        """What is done with each of some pieces that take long, in their order."""


class Alone:
    """One task after the other, here."""

    parts = 1

    def run(self, tasks: Sequence[Task[Result]], deadline: Deadline) -> Iterator[Result]:
        """The results of some tasks, in their order."""
        for task in tasks:
            yield task(deadline)

    def in_background(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """The work itself: done when its result is needed."""
        return work

    def each(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        """One after the other, here."""
        return map(do, items)


ALONE = Alone()

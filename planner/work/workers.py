"""Pieces of work that may run at the same time, and who runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from trainplan.planner.work.budget import Deadline

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
        """Some work that may be done beside all tasks; returns how to get its result.

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
        """The work itself: done when its result is asked for."""
        return work

    def each(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        """One after the other, here."""
        return map(do, items)


ALONE = Alone()

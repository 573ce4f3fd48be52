"""Who hears what a command says in the terminal's stead: a server that asks it for someone."""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Protocol

from rich.console import RenderableType


class Listener(Protocol):
    """Hears the answer and the progress of a command."""

    def answered(self, document: Mapping[str, object], page: Iterable[RenderableType]) -> None:
        """Take the answer: its public document, and the page people read."""

    def progressed(self, done: float, bound_s: float, best_s: float) -> None:
        """Take note of a search, as `planner.work.Budget.report` does."""


LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)
"""None: the terminal."""

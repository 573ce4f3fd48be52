"""Who receives what a command prints in place of the terminal: a server, or a program."""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Protocol

from rich.console import RenderableType


class Listener(Protocol):
    """Receives the answer and the progress of a command."""

    def answered(
        self, document: Mapping[str, object], page: Iterable[RenderableType], found: object
    ) -> None:
        """Take the answer: its public document, the page people read, and its value."""

    def progressed(self, done: float, bound_s: float, best_s: float) -> bool:
        """Take note of a search, as `Budget.report` of the planner; False leaves it to stderr."""


LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)
"""None: the terminal."""

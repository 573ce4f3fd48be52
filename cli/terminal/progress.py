"""A progress bar for work on a list, on a terminal and after a while."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trainplan.profiler.watch import Progress as Measured

T = TypeVar("T")
QUIET_SECONDS = 1.0
"""Shorter work shows no bar."""


def watched(items: Sequence[T], what: str) -> Iterator[T]:
    """The items, with a bar on stderr that counts those taken."""
    start = time.monotonic()
    progress = Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task(what, total=len(items))
    shown, possible = False, sys.stderr is not None and sys.stderr.isatty()
    try:
        for done, item in enumerate(items):
            if possible and not shown and time.monotonic() - start > QUIET_SECONDS:
                progress.start()
                shown = True
            if shown:
                progress.update(task, completed=done)
            yield item
    finally:
        if shown:
            progress.stop()


class TaskBar:
    """A bar with the time left for tasks that another process reports."""

    def __init__(self, what: str) -> None:
        self._start = time.monotonic()
        self._bar = Progress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[item]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(what, total=None, item="")
        self._possible = sys.stderr is not None and sys.stderr.isatty()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    def report(self, measured: Measured) -> None:
        """Move the bar."""
        if self._possible:
            self._bar.start()
            self._bar.update(
                self._task, completed=measured.done, total=measured.total, item=measured.item
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        if self._possible:
            self._bar.stop()

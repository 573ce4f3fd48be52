"""Time limit and progress bar of a search: the only clock it has."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from trainplan.cli.terminal.listener import LISTENER

QUIET_SECONDS = 1.0
"""A shorter search shows no bar."""


class Clock:
    """A `planner.work.budget.Budget`, and a `Deadline`, on the real clock.

    Where `stops` is set, control-C is the end of the limit; the second one does what it did before.
    """

    def __init__(self, limit_s: float | None, *, stops: bool = False) -> None:
        self._start = time.monotonic()
        self._limit_s = limit_s
        self._progress: Progress | None = None
        self._stops, self.stopped = stops, False
        """Has control-C come?"""
        self._before = signal.getsignal(signal.SIGINT)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    def is_stopped(self) -> bool:
        """Has control-C come?"""
        return self.stopped

    def spent(self) -> bool:
        """Is the limit over?"""
        return self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """Until the limit; infinite without one."""
        if self.stopped:
            return 0.0
        return float("inf") if self._limit_s is None else max(0.0, self._limit_s - self.seconds)

    def report(self, done: float, bound_s: float) -> None:
        """Move the bar, on a terminal and after a while; or tell who listens."""
        listener = LISTENER.get()
        if listener is not None:
            listener.progressed(done, bound_s)
            return
        if self._progress is None:
            if self.seconds < QUIET_SECONDS or sys.stderr is None or not sys.stderr.isatty():
                return
            self._progress = Progress(
                TextColumn("searching"),
                BarColumn(),
                TextColumn("{task.fields[bound]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.add_task("search", total=1.0, bound="")
            self._progress.start()
        for task in self._progress.tasks:
            self._progress.update(task.id, completed=done, bound=bound_text(bound_s))

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        self._stops &= main and callable(self._before)  # else it is ignored, or not for us to hear
        if self._stops:
            signal.signal(signal.SIGINT, self._stop)
        return self

    def __exit__(self, *ended: object) -> None:
        if self._stops:
            signal.signal(signal.SIGINT, self._before)
        if self._progress is not None:
            self._progress.stop()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Let the search end with what it has, or end at once."""
        if not self.stopped:
            self.stopped = True
        elif callable(self._before):
            self._before(number, frame)


def bound_text(bound_s: float) -> str:
    """What is known so far, where the work is one search."""
    return f"no layout is faster than {bound_s:.2f} s" if bound_s else ""

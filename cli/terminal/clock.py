"""Time limit and progress of a search: the only clock it has."""

import signal
import sys
import threading
import time
from math import inf, isfinite
from types import FrameType
from typing import Self

from trainplan.cli.terminal.age import command_seconds
from trainplan.cli.terminal.listener import LISTENER
from trainplan.cli.terminal.output import remark

EVERY_S, EVERY_S_IN_FILES = 3.0, 10.0
"""Seconds from one line of progress to the next: on a terminal, and elsewhere."""


class Clock:
    """A `planner.work.budget.Budget`, and a `Deadline`, on the real clock, since the command began.

    Where `stops` is set, control-C is the end of the limit; the second one does what it did before.
    """

    def __init__(self, limit_s: float, *, stops: bool = False) -> None:
        self._start = time.monotonic() - command_seconds()
        self._limit_s = limit_s
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._every_s = EVERY_S if terminal else EVERY_S_IN_FILES
        self._next_s = self._every_s
        self._stops, self.stopped = stops, False
        """Has control-C come?"""
        self._before = signal.getsignal(signal.SIGINT)

    @property
    def seconds(self) -> float:
        """Since the command began."""
        return time.monotonic() - self._start

    def is_stopped(self) -> bool:
        """Has control-C come?"""
        return self.stopped

    def spent(self) -> bool:
        """Is the limit over?"""
        return self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """Until the limit; infinite where that is."""
        return 0.0 if self.stopped else max(0.0, self._limit_s - self.seconds)

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        """Print a line now and then, or report to the listener."""
        listener, now = LISTENER.get(), self.seconds
        if listener is not None and listener.progressed(done, bound_s, best_s):
            return
        if now >= self._next_s:
            self._next_s = now + self._every_s
            remark(f"{now:.0f} s: {progress_text(done, bound_s, best_s)}")

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        self._stops &= main and callable(self._before)  # else it is ignored, or not for us to hear
        if self._stops:
            signal.signal(signal.SIGINT, self._stop)
        return self

    def __exit__(self, *ended: object) -> None:
        if self._stops:
            signal.signal(signal.SIGINT, self._before)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Let the search end with what it has, or end at once."""
        if not self.stopped:
            self.stopped = True
        elif callable(self._before):
            self._before(number, frame)


def progress_text(done: float, bound_s: float, best_s: float) -> str:
    """What is known so far, as `planner.work.Budget.report` takes it."""
    if isfinite(best_s):
        gap = max(0.0, 1 - bound_s / best_s)
        return f"fastest with even stages so far: {best_s:.4g} s a step, gap {gap * 100:.1f} %"
    bound = f"no layout is faster than {bound_s:.4g} s"
    return bound if 0 < bound_s < inf else f"{done * 100:.0f} % done"

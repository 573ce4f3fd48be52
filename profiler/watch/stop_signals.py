"""Signals that ask this process to end, noted while others work for it."""

import signal
import sys
from collections.abc import Callable
from threading import current_thread, main_thread
from time import monotonic, sleep
from types import FrameType
from typing import Self

NAP_SECONDS = 0.2
ENDS_US = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if sys.platform != "win32" else ()))


class StopSignals:
    """Notes Ctrl-C, SIGTERM and SIGHUP while others work, in place of ending us in the middle.

    Nothing is started, and nothing ended, by halves; a second Ctrl-C waits for the first. What is
    ignored, as SIGHUP under nohup, stays so.
    """

    def __init__(self) -> None:
        self.sent: signal.Signals | None = None
        """What came first."""
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None]
        self._before = {}

    def __enter__(self) -> Self:
        if current_thread() is main_thread():  # signals are the main thread's
            heard = (one for one in ENDS_US if signal.getsignal(one) is not signal.SIG_IGN)
            self._before = {one: signal.signal(one, self._note) for one in heard}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.sent = self.sent or signal.Signals(number)

    @property
    def stopped(self) -> bool:
        """One of them has come."""
        return self.sent is not None

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def sleep(self, seconds: float) -> None:
        """Wait, and not much longer once told.

        Raises:
            KeyboardInterrupt: We are told to end.
        """
        until = monotonic() + seconds
        while not self.stopped and (left := until - monotonic()) > 0:
            sleep(min(left, NAP_SECONDS))
        if self.stopped:
            raise KeyboardInterrupt

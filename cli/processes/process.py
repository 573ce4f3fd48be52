"""Another process: its start, what comes of it, its end."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe, get_context, parent_process
from multiprocessing.connection import Connection

START = "fork" if sys.platform == "linux" else "spawn"
"""How a process starts. A forked one knows what is known here; no thread of this process holds what
it needs, for solvers run on one thread. Elsewhere system libraries forbid it."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What came of a task, or of the start of a process."""

    result: object
    error: Exception | None = None


class Process:
    """Another process, and the line to it."""

    def __init__(self, work: Callable[[Connection], None], *, alone: bool = True) -> None:
        """`alone`: it starts no process of its own."""
        self.line, there = Pipe()
        started = get_context("fork") if START == "fork" else get_context("spawn")
        self._process = started.Process(target=work, args=(there,), daemon=alone)
        with warnings.catch_warnings(), _uninterrupted():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside other threads
            self._process.start()
        there.close()

    def answer(self) -> ProcessResult | None:
        """What it has found; None where it has died."""
        try:
            found: ProcessResult = self.line.recv()
        except (EOFError, OSError):
            return None
        return found

    def end(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.join()
        self.line.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Control-C waits here: a process just begun does not know yet that it is not meant."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def tried(work: Callable[[], object]) -> ProcessResult:
    """What comes of some work; an error is raised again where the work came from."""
    try:
        return ProcessResult(work())
    except Exception as error:  # noqa: BLE001 (any error of a task)
        return ProcessResult(None, error)


def follow_search() -> None:
    """Control-C is for the search, which ends its processes; if it was killed, they end too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_search, daemon=True).start()


def _end_with_search() -> None:
    search = parent_process()
    if search is not None:
        search.join()
        os._exit(1)

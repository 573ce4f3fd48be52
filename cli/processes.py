"""Processes that share the work of a search."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Self, TypeVar

from planner.budget import Deadline
from planner.workers import Task

Result = TypeVar("Result")

ALONE_SECONDS = 0.5
"""Work is done here until it has taken so long: a process needs about as long to start."""
MOST_PROCESSES = 8
"""By default; a search rarely has more to do at the same time, and each takes 150 MB."""
PARTS_OF_EACH = 2
"""Parts of a piece of work for each process, for parts are not alike."""


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Processes:
    """`planner.workers.Workers`: the work is done here until other processes are ready for it."""

    def __init__(self, count: int | None = None, alone_s: float = ALONE_SECONDS) -> None:
        self._count = min(MOST_PROCESSES, usable_cores()) if count is None else count
        self._alone_s = alone_s
        self._here_s = 0.0
        self._pool: ProcessPoolExecutor | None = None
        self._started: list[Future[object]] = []
        self._children: set[multiprocessing.process.BaseProcess] = set()

    @property
    def parts(self) -> int:
        """Into how many parts work is best cut."""
        return PARTS_OF_EACH * self._count if self._are_ready() else 1

    def run(self, tasks: Sequence[Task[Result]], deadline: Deadline) -> list[Result]:
        """The results of some tasks, in their order."""
        done: list[Result] = []
        while len(done) < len(tasks) and not self._are_ready():
            start = time.monotonic()
            done.append(tasks[len(done)](deadline))
            self._here_s += time.monotonic() - start
        return done + self._shared(tasks[len(done) :], deadline)

    def _shared(self, tasks: Sequence[Task[Result]], deadline: Deadline) -> list[Result]:
        """Results of other processes; where those have died, of this one."""
        if self._pool is None or len(tasks) < 2:
            return [task(deadline) for task in tasks]
        try:
            left = deadline.seconds_left()
            futures = [self._pool.submit(_done, task, left) for task in tasks]
            return [future.result() for future in futures]
        except BrokenProcessPool:
            self._pool, self._count = None, 1
            return [task(deadline) for task in tasks]

    def _are_ready(self) -> bool:
        """Has a process started? The first are asked for as soon as they are worth it."""
        if self._pool is None and self._count > 1 and self._here_s >= self._alone_s:
            self._start()
        return self._pool is not None and any(future.done() for future in self._started)

    def _start(self) -> None:
        before = set(multiprocessing.active_children())
        spawned = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(self._count, spawned, _begin)
        module = "planner.answer"
        self._started = [
            self._pool.submit(importlib.import_module, module) for _ in range(self._count)
        ]
        self._children = set(multiprocessing.active_children()) - before

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            child.terminate()


class _Until:
    """A deadline in another process."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def seconds_left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def _done(task: Task[Result], seconds: float) -> Result:
    return task(_Until(seconds))


def _begin() -> None:
    """Leave control-C to the process that began the search, and end when it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

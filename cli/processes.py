"""Processes that share the work of a search."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Self, TypeVar

import click

from planner.budget import Deadline
from planner.workers import Task

Result = TypeVar("Result")

ALONE_SECONDS = 0.5
"""Work is done here until it has taken so long: a process needs about as long to start."""
MOST_PROCESSES = 8
"""By default; a search rarely has more to do at the same time, and each takes 150 MB."""
FIRST_IMPORTED = "planner.split_tasks"
"""What tasks need; those that need more import it themselves."""
PARTS_OF_EACH = 2
"""Parts of a piece of work for each process, for parts are not alike."""


WORKERS = click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Processes that share the work; by default one for each core, at most 8.",
)


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
        return PARTS_OF_EACH * self._count if self._ready_pool() else 1

    def run(self, tasks: Sequence[Task[Result]], deadline: Deadline) -> Iterator[Result]:
        """The results of some tasks, in their order."""
        waiting = deque(tasks)
        while waiting:
            pool = self._ready_pool() if len(waiting) > 1 else None
            if pool:
                for result in self._shared(pool, tuple(waiting), deadline):
                    waiting.popleft()
                    yield result
            else:
                start = time.monotonic()
                yield waiting.popleft()(deadline)
                self._here_s += time.monotonic() - start

    def _shared(
        self, pool: ProcessPoolExecutor, tasks: Sequence[Task[Result]], deadline: Deadline
    ) -> Iterator[Result]:
        """Results of other processes, until they die."""
        end = time.time() + deadline.seconds_left()
        try:
            for future in [pool.submit(_done, task, end) for task in tasks]:
                yield future.result()
        except BrokenProcessPool:
            self._pool, self._count = None, 1

    def _ready_pool(self) -> ProcessPoolExecutor | None:
        """Other processes, if one has started: the first are asked for when they are worth it."""
        if self._pool is None and self._count > 1 and self._here_s >= self._alone_s:
            self._start()
        return self._pool if any(future.done() for future in self._started) else None

    def _start(self) -> None:
        before = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(self._count, multiprocessing.get_context("spawn"), _begin)
        self._started = [
            self._pool.submit(importlib.import_module, FIRST_IMPORTED) for _ in range(self._count)
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
    """A deadline at a time of the day, which all processes share."""

    def __init__(self, end: float) -> None:
        self._end = end

    def seconds_left(self) -> float:
        return max(0.0, self._end - time.time())


def _done(task: Task[Result], end: float) -> Result:
    return task(_Until(end))


def _begin() -> None:
    """Leave control-C to the process that began the search, and end when it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

"""Processes that share the work of a search."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Self, TypeVar, cast

from trainplan.cli.processes.process import START, Process, ProcessResult, follow_search, tried
from trainplan.planner.solvers import load_solvers
from trainplan.planner.work import Deadline, Task
from trainplan.profiler.host import usable_cores

Result = TypeVar("Result")
Item = TypeVar("Item")

ALONE_SECONDS = 0.8
"""CPU seconds of the search until which tasks are done here; a small job takes less.

Source: measured; two processes add 0.35 s of work, for what each works out anew."""
MOST_PROCESSES = 8
"""By default; a search rarely has more to do at the same time."""
NICENESS = 19
"""Of work next to all other: it takes what that leaves of the processors."""
STOP_HEARD_S = 0.1
"""Seconds after which it is noticed that the user wants an end."""
LEAST_SHARE = 2
"""Pieces that are worth a process of their own. Source: measured; one takes 45 ms, a fork 10."""


class _Worker(Process):
    """A process that does tasks, and the number of the one it has."""

    def __init__(self) -> None:
        super().__init__(_work)
        self.number: int | None = None
        self.busy = True  # with its start

    def give(self, number: int, task: Task[object], end: float) -> bool:
        """Hand it a task; False where it has died."""
        try:
            self.line.send((task, end))
        except OSError:
            return False
        self.number, self.busy = number, True
        return True

    def answer(self) -> ProcessResult | None:
        """What it has found; None where it has died."""
        found = super().answer()
        self.busy = found is None
        return found


class Processes:
    """`planner.work.Workers`: tasks are done here until they have taken a while.

    This process has no thread and no lock for it, so control-C may come at any moment.
    """

    def __init__(
        self,
        count: int | None = None,
        alone_s: float = ALONE_SECONDS,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._count = min(MOST_PROCESSES, usable_cores()) if count is None else count
        self._alone_s, self._begun, self._stopped = alone_s, time.process_time(), stopped
        self._workers: list[_Worker] = []
        self._forks: list[Process] = []

    @property
    def parts(self) -> int:
        """Into how many parts work is best cut."""
        return self._count

    def run(self, tasks: Sequence[Task[Result]], deadline: Deadline) -> Iterator[Result]:
        """The results of some tasks, in their order."""
        waiting = deque(tasks)
        while waiting and not (len(waiting) > 1 and self._ready()):
            yield waiting.popleft()(deadline)
        yield from self._shared(tuple(waiting), deadline)

    def in_background(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Some work, begun in what tasks leave of the processors; returns how to get its result.

        It begins with all that is known here, so only where processes are forked.
        """
        if START != "fork" or self._count < 2:
            return work
        return self._forked(work, NICENESS)

    def each(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        """What is done with each of some pieces: shared at once, and no piece has to travel."""
        most = self._count if START == "fork" else 1
        count = max(1, min(most, len(items) // LEAST_SHARE))
        first, *others = (partial(_all, do, items[i::count]) for i in range(count))
        begun = [self._forked(share) for share in others]
        found = [first(), *(result() for result in begun)]
        return [found[i % count][i // count] for i in range(len(items))]

    def _forked(self, work: Callable[[], Result], niceness: int = 0) -> Callable[[], Result]:
        """Work begun in a process that is forked for it; returns how to get its result."""
        process = Process(partial(self._alone, work, niceness))
        self._forks.append(process)

        def result() -> Result:
            while not process.line.poll(STOP_HEARD_S):
                if self._stopped():
                    process.end()
                    return work()
            found = process.answer()
            if found is None:
                return work()
            if found.error:
                raise found.error
            return cast("Result", found.result)

        return result

    def _alone(self, work: Callable[[], object], niceness: int, line: Connection) -> None:
        """Do all of some work, in the process begun for it."""
        self._workers, self._count = [], 1
        os.nice(niceness)
        follow_search()
        line.send(tried(work))

    def _shared(self, tasks: Sequence[Task[Result]], deadline: Deadline) -> Iterator[Result]:
        """Results of other processes; of this one, should all of them die."""
        end = time.time() + deadline.seconds_left()
        waiting, done = deque(range(len(tasks))), dict[int, object]()
        try:
            for number in range(len(tasks)):
                while number not in done:
                    if self._stopped():
                        self._end_all(waiting, done, len(tasks))
                    self._hand_out(waiting, tasks, end)
                    if self._workers:
                        self._collect(waiting, done)
                    else:
                        first = waiting.popleft()
                        done[first] = tasks[first](deadline)
                yield cast("Result", done.pop(number))
        finally:
            for worker in [one for one in self._workers if one.number is not None]:
                self._lose(worker)

    def _hand_out(self, waiting: deque[int], tasks: Sequence[Task[object]], end: float) -> None:
        for worker in [one for one in self._workers if not one.busy]:
            if waiting and worker.give(waiting[0], tasks[waiting[0]], end):
                waiting.popleft()
            elif waiting:
                self._lose(worker)

    def _collect(self, waiting: deque[int], done: dict[int, object]) -> None:
        """Wait for an answer or the end of a process, for a moment.

        Raises:
            Exception: What a task has raised.
        """
        lines = wait([one.line for one in self._workers if one.busy], STOP_HEARD_S)
        for worker in [one for one in self._workers if one.line in lines]:
            number, found, worker.number = worker.number, worker.answer(), None
            if found is None:
                self._lose(worker)
                if number is not None:
                    waiting.appendleft(number)
            elif found.error:
                raise found.error
            elif number is not None:
                done[number] = found.result

    def _ready(self) -> bool:
        """Is another process there? They are started as soon as they are worth it."""
        taken = time.process_time() - self._begun
        if not self._workers and self._count > 1 and taken >= self._alone_s:
            self._workers = [_Worker() for _ in range(self._count)]
        for worker in [one for one in self._workers if one.busy and one.line.poll()]:
            if worker.answer() is None:
                self._lose(worker)
        return any(not worker.busy for worker in self._workers)

    def _end_all(self, waiting: deque[int], done: Mapping[int, object], count: int) -> None:
        """Nothing waits for the answers: what is left is soon done here, where no time is left."""
        for worker in tuple(self._workers):
            self._lose(worker)
        self._count = 1
        waiting.clear()
        waiting.extend(number for number in range(count) if number not in done)

    def _lose(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._count -= 1
        worker.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        for process in (*self._workers, *self._forks):
            process.end()


class _Until:
    """A deadline at a time of the day, which all processes share."""

    def __init__(self, end: float) -> None:
        self._end = end

    def seconds_left(self) -> float:
        return max(0.0, self._end - time.time())


def _work(line: Connection) -> None:
    """Do tasks as they come."""
    follow_search()
    load_solvers()
    line.send(ProcessResult(None))
    while True:
        try:
            task, end = line.recv()
        except EOFError:  # the search was killed
            return
        line.send(tried(partial(task, _Until(end))))


def _all(do: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [do(piece) for piece in items]

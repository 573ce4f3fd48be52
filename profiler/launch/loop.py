"""From task to task, all ranks in step: what one of them cannot do is written down, and on."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from time import monotonic
from typing import Literal

from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.spec.evidence.profile import Failure, Point
from trainplan.profiler.host.canary import NOISE, Canary, State, changes
from trainplan.profiler.host.clock import DeviceClock
from trainplan.profiler.journal.file import JournalFile
from trainplan.profiler.journal.records import (
    MOST_STARTS,
    Done,
    Failed,
    Header,
    Record,
    Remark,
    Start,
    TaskName,
    must_match,
)
from trainplan.profiler.journal.samples import Book, Samples, labelled
from trainplan.profiler.launch.ranks import Ranks
from trainplan.profiler.task import Item, MeasurementTask, Request
from trainplan.profiler.torch_on_use import torch
from trainplan.profiler.watch.heartbeat import Heart

LEFT_ALONE = re.compile(
    r"timed? ?out|connection (closed|reset|refused)|by peer|broken pipe|failed to recv|"
    r"recvValue failed|sendBytes failed|pair closure|remote (process|error)|network error|"
    r"communicator was aborted",
    re.IGNORECASE,
)
"""What torch, gloo and NCCL say on a rank that waited for another one in vain."""
UNSUPPORTED = re.compile(
    r"not (yet )?(supported|implemented)|unsupported|does not support|no backend", re.IGNORECASE
)
BROKEN_DEVICE = re.compile(r"(CUDA|HIP) error", re.IGNORECASE)
"""An error after which every further call of this process fails too."""

Decision = Literal["run", "done", "pass over"]


class Restart(Exception):  # noqa: N818 (asks for fresh processes, no error)
    """Groups or device are broken: what is left is measured by fresh processes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended on this rank."""

    points: tuple[Point, ...] = ()
    samples: tuple[Samples, ...] = ()
    error: str = ""
    alone: bool = False
    """The error is that other ranks did not take part."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A task, or why an item has none."""

    item: str
    task: MeasurementTask
    decision: Decision = "run"

    @property
    def name(self) -> TaskName:
        """As the journal knows it."""
        return TaskName(self.item, self.task.key)


@dataclass(slots=True)
class Walk:
    """The tasks of a run, seen by one rank."""

    ranks: Ranks
    clock: DeviceClock
    heart: Heart
    canary: Canary
    journal: JournalFile
    steps: list[Step] = field(default_factory=list)

    @property
    def first(self) -> bool:
        """This rank decides and writes."""
        return self.ranks.place.rank == 0

    def open(self, header: Header) -> None:
        """Begin a journal or go on with one.

        Raises:
            SpecError: The journal is of something else.
        """
        refusal = self.ranks.from_first(_opened(self.journal, header) if self.first else "")
        if refusal:
            raise SpecError(refusal)

    def plan(self, request: Request, items: Sequence[Item]) -> None:
        """List the tasks of all items; rank 0 says which ones the journal settles."""
        for item in items:
            self.steps.extend(Step(item.name, task) for task in self._tasks(item, request))
        decided = json.loads(self.ranks.from_first(json.dumps(self._decisions())))
        self.steps = [
            Step(step.item, step.task, decision)
            for step, decision in zip(self.steps, decided, strict=True)
        ]

    def _tasks(self, item: Item, request: Request) -> tuple[MeasurementTask, ...]:
        """Tasks of an item, the same on all ranks; none where a rank cannot list them."""
        tasks, error = _listed(item, request, self.ranks)
        keys = json.dumps([(task.key, task.together) for task in tasks])
        errors, lists = self.ranks.gather(error), self.ranks.gather(keys)
        failing = next((rank for rank, text in enumerate(errors) if text), None)
        if failing is None and len(set(lists)) > 1:
            failing = next(rank for rank, text in enumerate(lists) if text != lists[0])
            errors = (*errors[:failing], "its tasks differ from those of rank 0", *errors[failing:])
        if failing is None:
            return tasks
        self._fail(TaskName(item.name, ""), failing, errors[failing])
        return ()

    def _decisions(self) -> list[Decision]:
        content = self.journal.content() if self.first else None
        if content is None:
            return []
        return [
            "done"
            if step.name in content.done
            else "pass over"
            if content.starts.get(step.name, 0) >= MOST_STARTS
            else "run"
            for step in self.steps
        ]

    def note_slow(self, ranks: Sequence[int]) -> None:
        """Write down ranks whose canary is slower than that of the others."""
        if ranks:
            listed = " and ".join(map(str, ranks))
            which = f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"
            self.note(f"{NOISE} {which} slower than the others at the start")

    def note(self, sentence: str) -> None:
        """Write down something to know about all that is measured."""
        self._write(Remark(item="", keys=(), flags=(), note=sentence))

    def run(self) -> None:
        """Measure all tasks that are not settled, in order.

        Raises:
            Restart: Fresh processes have to go on.
        """
        done = sum(step.decision == "done" for step in self.steps)
        for item, steps in groupby(self.steps, key=lambda step: step.item):
            measured = []
            for step in steps:
                if step.decision == "done":
                    continue
                self.heart.report_phase("waiting", done=done, total=len(self.steps))
                if self._settle(step):
                    measured.append(step.name.key)
                done += 1
            self._watch(item, measured)
        self.heart.report_phase("waiting", done=done, total=len(self.steps))

    def _settle(self, step: Step) -> bool:
        """Measure a task, or pass over one that stopped the run before; true where measured."""
        if step.decision == "pass over":
            why = f"stopped the run {MOST_STARTS} times and is passed over"
            self._fail(step.name, None, why)
            return False
        self._write(Start(item=step.item, key=step.task.key))
        self.ranks.gather("")  # rank 0 has written: the task may end any of the processes
        takes_part = self.first or step.task.together
        self.heart.report_phase(
            "measuring" if takes_part else "waiting", item=step.item, key=step.task.key, detail=""
        )
        outcome = _attempt(step.task, self.clock) if takes_part else Outcome()
        self.heart.report_phase(
            "failed" if outcome.error and not outcome.alone else "waiting", detail=outcome.error
        )
        return self._agree(step, outcome)

    def _agree(self, step: Step, mine: Outcome) -> bool:
        """True where the task ended well on all ranks.

        Raises:
            Restart: It left some ranks in calls that the others do not make, or a broken device.
        """
        said = self.ranks.gather(json.dumps((mine.error, mine.alone)))
        errors = [(str(error), bool(alone)) for error, alone in map(json.loads, said)]
        failing = [rank for rank, (error, _) in enumerate(errors) if error]
        if not failing:
            self._write(
                Done(
                    item=step.item,
                    key=step.task.key,
                    seconds=mine.seconds,
                    points=mine.points,
                    samples=mine.samples,
                )
            )
            return True
        culprit = next((rank for rank in failing if not errors[rank][1]), failing[0])
        self._fail(step.name, culprit, errors[culprit][0])
        uneven = step.task.together and len(failing) < len(errors)
        if uneven or any(alone or BROKEN_DEVICE.search(error) for error, alone in errors):
            self.ranks.gather("")  # rank 0 has written
            raise Restart
        return False

    def _watch(self, item: str, keys: Sequence[str]) -> None:
        """Remark upon tasks after which the machine was not as at the start."""
        if not keys:
            return
        self.heart.report_phase("measuring", key="canary")
        mine = self.canary.state().model_dump_json()
        self.heart.report_phase("waiting")
        states = [State.model_validate_json(text) for text in self.ranks.gather(mine)]
        for change in changes(states, item, self.ranks.place):
            self._write(Remark(item=item, keys=tuple(keys), flags=(change.flag,), note=change.note))

    def _fail(self, name: TaskName, rank: int | None, detail: str) -> None:
        hosts = self.ranks.gather(self.heart.beat.host)
        host = None if rank is None else hosts[rank]
        text = f"{name.key}: {detail}" if name.key else detail
        failure = Failure(item=name.item, detail=text, rank=rank, host=host)
        self._write(Failed(item=name.item, key=name.key, failure=failure))

    def _write(self, record: Record) -> None:
        if self.first:
            self.journal.append(record)


def _opened(journal: JournalFile, header: Header) -> str:
    """Why the journal cannot be gone on with; empty where it can."""
    try:
        content = journal.content()
        if content is None:
            journal.append(header)
        else:
            must_match(header, content.header)
    except SpecError as error:
        return str(error)
    return ""


def _listed(item: Item, request: Request, ranks: Ranks) -> tuple[tuple[MeasurementTask, ...], str]:
    try:
        return tuple(item.tasks(request, ranks.place)), ""
    except Exception as error:  # noqa: BLE001 (an item that cannot be listed does not end the run)
        return (), _described(error)


def _attempt(task: MeasurementTask, clock: DeviceClock) -> Outcome:
    begin, book = monotonic(), Book()
    try:
        points = tuple(task.measure(replace(clock, book=book)))
    except Exception as error:  # noqa: BLE001 (whatever a kernel raises is listed, and on)
        outcome = Outcome(error=_described(error), alone=_left_alone(error))
    else:
        samples = tuple(labelled(book.taken, points))
        return Outcome(points, samples, seconds=monotonic() - begin)
    _free_memory()
    return outcome


def _left_alone(error: Exception) -> bool:
    return not isinstance(error, PlanError) and bool(LEFT_ALONE.search(str(error)))


def _described(error: Exception) -> str:
    """Reason and first line of an error."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    name = type(error).__name__
    if isinstance(error, PlanError):
        return lines[0]
    if isinstance(error, MemoryError) or name == "OutOfMemoryError":
        return f"out of memory: {lines[0]}"
    if isinstance(error, NotImplementedError) or UNSUPPORTED.search(lines[0]):
        return f"unsupported: {lines[0]}"
    return f"{name}: {lines[0]}"


def _free_memory() -> None:
    """Give back what the failed task held, so that the next ones have room."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

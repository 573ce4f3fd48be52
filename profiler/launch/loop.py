"""From task to task, all ranks in step: what one of them cannot do is written down, and on."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.profiles import Failure
from trainplan.profiler.host import NOISE, DeviceClock, SpeedProbe, State, changes
from trainplan.profiler.journal import (
    MOST_STARTS,
    Done,
    Failed,
    Header,
    JournalContent,
    JournalFile,
    Record,
    Remark,
    Start,
    TaskName,
)
from trainplan.profiler.launch.outcome import Outcome, attempt, described
from trainplan.profiler.launch.ranks import Ranks
from trainplan.profiler.launch.scheduler import Scheduler, Turn
from trainplan.profiler.task import Item, MeasurementTask, Request
from trainplan.profiler.watch import Heartbeat

BROKEN_DEVICE = re.compile(r"(CUDA|HIP) error", re.IGNORECASE)
"""An error after which every further call of this process fails too."""

Decision = Literal["run", "done", "pass over"]


class Restart(Exception):  # noqa: N818 (asks for fresh processes, no error)
    """Groups or device are broken: what is left is measured by fresh processes."""


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
class RunLoop:
    """The tasks of a run, seen by one rank."""

    ranks: Ranks
    clock: DeviceClock
    heartbeat: Heartbeat
    probe: SpeedProbe
    journal: JournalFile
    now: Callable[[], float] = monotonic
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
        if not self.first:
            return []
        content = self.content()
        return [
            "done"
            if step.name in content.done
            else "pass over"
            if content.starts.get(step.name, 0) >= MOST_STARTS
            else "run"
            for step in self.steps
        ]

    def content(self) -> JournalContent:
        """What the journal says now.

        Raises:
            SpecError: It was changed or removed while the run writes to it.
        """
        content = self.journal.content()
        if content is None:
            raise SpecError("the journal was removed during the run")
        return content

    def note_slow(self, ranks: Sequence[int]) -> None:
        """Write down ranks whose probe is slower than that of the others."""
        if ranks:
            listed = " and ".join(map(str, ranks))
            which = f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"
            self.note(f"{NOISE} {which} slower than the others at the start")

    def note(self, sentence: str) -> None:
        """Write down something to know about all that is measured."""
        self._write(Remark(item="", keys=(), flags=(), note=sentence))

    def run(self, scheduler: Scheduler | None) -> None:
        """Measure what is not settled, in the order of the agenda, which rank 0 alone has.

        Raises:
            Restart: Fresh processes have to go on.
        """
        done, total = sum(step.decision == "done" for step in self.steps), len(self.steps)
        for step in self.steps:
            if step.decision == "pass over":
                why = f"stopped the run {MOST_STARTS} times and is passed over"
                self._fail(step.name, None, why)
                done += 1
        try:
            while (turn := self._turn(scheduler, done, total)).does != "end":
                if turn.does == "check":
                    self._watch(scheduler)
                    continue
                total += turn.does == "repeat"
                self._settle(self.steps[turn.step], turn.step, scheduler)
                done += 1
        except Restart:
            self._leave_out(scheduler)  # a budget may have no time for fresh processes
            raise
        self._leave_out(scheduler)
        self.heartbeat.report_phase("waiting", done=done, total=total)

    def _leave_out(self, scheduler: Scheduler | None) -> None:
        left_out = scheduler.left_out() if scheduler else None
        if left_out:
            self._write(left_out)

    def _turn(self, scheduler: Scheduler | None, done: int, total: int) -> Turn:
        """What rank 0 says comes next: it has written that the task begins, which may end it."""
        self.heartbeat.report_phase("waiting", done=done, total=total)
        turn = scheduler.turn() if scheduler else Turn(does="end")
        if turn.does in ("task", "repeat"):
            step = self.steps[turn.step]
            self._write(Start(item=step.item, key=step.task.key))
        return Turn.model_validate_json(self.ranks.from_first(turn.model_dump_json()))

    def _settle(self, step: Step, number: int, scheduler: Scheduler | None) -> None:
        """Measure a task."""
        begin = self.now()
        takes_part = self.first or step.task.together
        self.heartbeat.report_phase(
            "measuring" if takes_part else "waiting", item=step.item, key=step.task.key, detail=""
        )
        outcome = attempt(step.task, self.clock) if takes_part else Outcome()
        self.heartbeat.report_phase(
            "failed" if outcome.error and not outcome.alone else "waiting", detail=outcome.error
        )
        measured = self._agree(step, outcome)
        if scheduler:
            scheduler.ended(number, self.now() - begin, measured=measured)

    def _agree(self, step: Step, mine: Outcome) -> bool:
        """True where the task ended well on all ranks.

        Raises:
            Restart: It left some ranks in calls that the others do not make, or a broken device.
        """
        texts = self.ranks.gather(json.dumps((mine.error, mine.alone)))
        errors = [(str(error), bool(alone)) for error, alone in map(json.loads, texts)]
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

    def _watch(self, scheduler: Scheduler | None) -> None:
        """Remark upon tasks after which the machine was not as usual."""
        begin = self.now()
        self.heartbeat.report_phase("measuring", key="canary")
        mine = self.probe.state().model_dump_json()
        self.heartbeat.report_phase("waiting")
        states = [State.model_validate_json(text) for text in self.ranks.gather(mine)]
        if scheduler is None:
            return
        tasks = scheduler.checked(self.now() - begin)
        for change in changes(states, tasks[-1].name.item, self.ranks.place):
            for item in dict.fromkeys(task.name.item for task in tasks):
                keys = tuple(
                    task.name.key
                    for task in tasks
                    if task.name.item == item
                    and (0 in change.ranks or self.steps[task.step].task.together)
                )
                remark = Remark(item=item, keys=keys, flags=(change.flag,), note=change.note)
                self._write(remark)

    def _fail(self, name: TaskName, rank: int | None, detail: str) -> None:
        hosts = self.ranks.gather(self.heartbeat.beat.host)
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
    except SpecError as error:
        return str(error)
    if content is None:
        journal.append(header)
        return ""
    try:
        header.must_match(content.header)
    except SpecError as error:
        return f"{journal.path.name}: {error}"
    return ""


def _listed(item: Item, request: Request, ranks: Ranks) -> tuple[tuple[MeasurementTask, ...], str]:
    try:
        return tuple(item.tasks(request, ranks.place)), ""
    except Exception as error:  # noqa: BLE001 (an item that cannot be listed does not end the run)
        return (), described(error)

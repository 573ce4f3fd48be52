"""Calls: a process for each, its progress, its limits and its end."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import anyio
from anyio import to_thread

from trainplan.cli.files import Looks
from trainplan.cli.processes import Process, ProcessResult
from trainplan.cli.serve.work import Answer, Call, Progress, work
from trainplan.cli.terminal import bug_line
from trainplan.planner.documents import PlanDocument
from trainplan.profiler.watch import run_folder

HEARD_EVERY_S = 0.05
"""Seconds after which it is noticed that a process has printed something."""
NOTED_EVERY_S = 0.5
"""Seconds between two notes of progress to the client, which may give up where none come."""
GRACE_S = 60.0
"""Seconds beyond a time limit in which a search ends by itself."""
MOST_WAITING = 16
"""Calls that wait for others; more are refused."""
OVERRUN = "no answer within {limit:g} s: request less, or raise time_limit"
VANISHED = "the process of this call ended without an answer, as where memory ran out: request less"
TOO_MANY = "too many calls at once: wait for their answers, or start the server with more --calls"

Stated = Callable[[Progress], Awaitable[None]]


class Calls:
    """Runs calls, some at the same time, the others in turn."""

    def __init__(self, at_once: int) -> None:
        self._turns = anyio.Semaphore(at_once)

    async def run(self, call: Call, limit_s: float, given: Stated, grace_s: float = 0.0) -> Answer:
        """The answer of a call; cancelled, its process is ended at once.

        `grace_s`: seconds beyond the limit in which a command that knows it ends by itself.
        """
        if self._turns.statistics().tasks_waiting >= MOST_WAITING:
            return Answer(error=TOO_MANY)
        async with self._turns:
            with run_folder() as folder, anyio.move_on_after(limit_s + grace_s):
                there = replace(call, folder=folder.resolve())
                return await self._followed(there, given)
        return Answer(error=OVERRUN.format(limit=limit_s))

    async def _followed(self, call: Call, given: Stated) -> Answer:
        process = Process(partial(work, call), alone=False)
        try:
            known, noted = Progress(), anyio.current_time()
            while True:
                if process.line.poll():
                    heard = _heard(process)
                    if isinstance(heard, Answer):
                        return heard
                    known = heard
                if anyio.current_time() - noted >= NOTED_EVERY_S:
                    noted = anyio.current_time()
                    await given(known)
                await anyio.sleep(HEARD_EVERY_S)
        finally:
            process.end()


def _heard(process: Process) -> Answer | Progress:
    try:
        found: object = process.line.recv()
    except (EOFError, OSError):
        return Answer(error=VANISHED)
    if isinstance(found, ProcessResult):
        if found.error:
            return Answer(error=bug_line(found.error))
        found = found.result
    assert isinstance(found, Answer | Progress)
    return found


class Kept:
    """The last answers, and plans by the names they may be named by."""

    MOST = 32
    """Of each."""

    def __init__(self) -> None:
        self.plans: dict[str, str] = {}
        self._answers: dict[str, tuple[Answer, str]] = {}
        self._count = 0

    async def find(self, key: str) -> tuple[Answer, str] | None:
        """An answer to the same question and the name of its plan, while its files are the same."""
        known = self._answers.get(key)
        looks = known[0].looks if known else Looks(steady=False)
        holds = await to_thread.run_sync(looks.hold, abandon_on_cancel=True)
        return known if holds else None

    def keep(self, key: str, answer: Answer) -> str:
        """Keep an answer; returns the name of its plan, empty where it is none."""
        name = ""
        if json.loads(answer.document).get("schema") == PlanDocument.SCHEMA:
            self._count += 1
            name = f"plan-{self._count}"
            self.plans[name] = answer.document
        self._answers.pop(key, None)
        self._answers[key] = answer, name
        for kept in (self.plans, self._answers):
            while len(kept) > self.MOST:
                del kept[next(iter(kept))]
        return name


def key_of(command: str, arguments: Mapping[str, object]) -> str:
    """The same for the same words, whatever parts of the answer are requested."""
    stated = {name: value for name, value in arguments.items() if name != "parts"}
    return json.dumps([command, stated], sort_keys=True)

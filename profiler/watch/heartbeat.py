"""What each rank is doing, told in a small file of its own for the process that watches it."""

import os
import socket
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

from trainplan.costmodel.spec import Spec

BEAT_SECONDS = 0.25

Phase = Literal[
    "starting", "meeting", "measuring", "waiting", "failed", "restart", "refused", "finished"
]
"""`starting`: loads its libraries. `meeting`: until all ranks are there. `measuring`: in a call of
a task. `waiting`: for other ranks. `failed`: the call raised an error. `restart`: ends so that
fresh processes go on. `refused`: cannot run at all, `detail` says why."""
OVER: tuple[Phase, ...] = ("restart", "refused", "finished")
"""After these a process ends by itself."""
Ended = Literal["", "alone"]
"""Why the process ends though its task does not: left alone by the other ranks."""


class Beat(Spec):
    """What a rank does."""

    rank: NonNegativeInt
    host: str
    pid: PositiveInt
    number: NonNegativeInt = 0
    """Counts up while the process runs."""
    phase: Phase = "starting"
    ended: Ended = ""
    step: NonNegativeInt = 0
    """Counts up with every change of what the rank does, and with parts of a task that are done."""
    item: str = ""
    key: str = ""
    detail: str = ""
    done: NonNegativeInt = 0
    total: NonNegativeInt = 0
    elapsed_seconds: NonNegativeFloat = 0.0


class Heartbeat:
    """Writes the beat of this process: at every change, and a few times a second between.

    The process ends with its parent, the one that watches it.
    """

    def __init__(self, folder: Path, rank: int, parent: int) -> None:
        self._parent = parent
        self._path = folder / f"rank-{rank}.json"
        self._beat = Beat(rank=rank, host=socket.gethostname(), pid=os.getpid())
        self._begin = monotonic()
        self._lock = Lock()
        self._write()
        Thread(target=self._go_on, daemon=True).start()

    @property
    def beat(self) -> Beat:
        """What was told last."""
        return self._beat

    def report_phase(self, phase: Phase, **changes: str | int) -> None:
        """Write down a change of what this rank does."""
        with self._lock:
            update = {"phase": phase, "step": self._beat.step + 1, **changes}
            self._beat = self._beat.model_copy(update=update)
        self._write()

    def go_on(self) -> None:
        """A part of a task is done; the next beat has it."""
        with self._lock:
            self._beat = self._beat.model_copy(update={"step": self._beat.step + 1})

    def end(self, ended: Ended) -> None:
        """Write down that the process ends in the middle of what it does."""
        with self._lock:
            self._beat = self._beat.model_copy(update={"ended": ended})
        self._write()

    def _go_on(self) -> None:
        while True:
            sleep(BEAT_SECONDS)
            if os.getppid() != self._parent:  # where the system does not end us with it
                os._exit(1)
            with suppress(OSError):  # the folder goes as we are ended, or its drive is full
                self._write()

    def _write(self) -> None:
        with self._lock:
            number, elapsed = self._beat.number + 1, monotonic() - self._begin
            self._beat = self._beat.model_copy(
                update={"number": number, "elapsed_seconds": elapsed}
            )
            draft = self._path.with_suffix(".draft")
            draft.write_text(self._beat.model_dump_json(), "utf-8")
            draft.replace(self._path)


def read_beats(folder: Path) -> tuple[Beat, ...]:
    """Beats of the ranks of this host, by rank; those that have none yet are absent."""
    beats = []
    for path in folder.glob("rank-*.json"):
        try:
            beats.append(Beat.model_validate_json(path.read_text("utf-8")))
        except (OSError, ValidationError):
            continue  # removed this moment
    return tuple(sorted(beats, key=lambda beat: beat.rank))

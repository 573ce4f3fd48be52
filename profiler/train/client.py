"""The command's end of the line to the process that trains; nothing here imports torch.

`CountedRuns` counts every byte, as `planner.verification` asks.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryFile
from time import monotonic
from typing import Protocol, Self

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.profiler.train.request import (
    Answered,
    RankReport,
    TrainerName,
    TrainingFailedError,
    TrainingRequest,
    TrainOrder,
)
from trainplan.profiler.train.trainers import need, refusal
from trainplan.profiler.watch import die_with_parent, end

START_SECONDS = 180.0
"""Longest time that importing the libraries takes."""
GRACE_SECONDS = 10.0
"""What the server has after the deadline of the ranks to say that it has passed."""
TRIES = 2
"""Of a run whose ranks something outside ends."""
MODULE = "trainplan.profiler.train.server"


class Trainers:
    """Processes that train one request after the other; none is left when the block ends.

    The libraries are imported once, by a server that the block starts; it forks the ranks of each
    request. Start it in the thread that stays: the server ends with that thread.
    """

    def __init__(self, trainer: TrainerName) -> None:
        need(trainer)
        self.trainer: TrainerName = trainer
        self._server: Popen[bytes] | None = None
        self._errors = TemporaryFile()  # noqa: SIM115 (closed with the block)

    def __enter__(self) -> Self:
        self._server = self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._errors.close()

    @property
    def pid(self) -> int | None:
        """Of the server, which leads the group of all its ranks; null: none runs."""
        return self._server.pid if self._server else None

    def run(
        self, request: TrainingRequest, nproc: int, deadline_seconds: float
    ) -> tuple[RankReport, ...]:
        """Train, and say what each rank saw, in order of rank.

        Raises:
            SpecError: The trainer cannot run it, or the layout has another number of ranks.
            TrainingFailedError: A rank died, hung or computed no number. The next run may follow.
        """
        if nproc != request.layout.world_size:
            raise SpecError(f"{nproc} processes for {request.layout.world_size} ranks of a layout")
        if why := refusal(request):
            raise SpecError(f"{request.trainer} does not run {why}")
        order = TrainOrder(request=request, nproc=nproc, deadline_seconds=deadline_seconds)
        answered = self._ask(order)
        if answered.ending != "measured":
            by_signal = answered.by_signal
            raise TrainingFailedError(answered.ending, answered.reason, by_signal=by_signal)
        return answered.reports

    def _ask(self, order: TrainOrder) -> Answered:
        if self._server is None:
            self._server = self._start()
        assert self._server.stdin and self._server.stdout, "both are pipes"
        try:
            self._server.stdin.write(order.model_dump_json().encode() + b"\n")
            self._server.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        patience = START_SECONDS + order.deadline_seconds + GRACE_SECONDS
        line = _line(self._server.stdout.fileno(), monotonic() + patience)
        if line is None:
            self._end()
            raise TrainingFailedError("hang", f"the trainer gave no answer in {patience:.0f} s")
        if not line.endswith(b"\n"):
            raise self._died()
        return Answered.model_validate_json(line)

    def _start(self) -> Popen[bytes]:
        return Popen(
            [sys.executable, "-m", MODULE, self.trainer],
            stdin=PIPE,
            stdout=PIPE,
            stderr=self._errors,
            env=environment(),
            start_new_session=True,
            preexec_fn=partial(die_with_parent, signal.SIGKILL),  # noqa: PLW1509 (takes no lock)
        )

    def _died(self) -> TrainingFailedError:
        """Why the server is gone, in its last words."""
        self._end()
        self._errors.seek(0)
        words = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        last = words[-1].strip() if words else "it printed nothing"
        return TrainingFailedError("crash", f"the trainer ended: {last}")

    def _end(self) -> None:
        """Kill the server and its ranks, which are of its process group."""
        if self._server is not None:
            end(self._server, ())
            for pipe in (self._server.stdin, self._server.stdout):
                if pipe:
                    with suppress(BrokenPipeError):
                        pipe.close()
            self._server = None


def slowest_seconds(reports: Sequence[RankReport]) -> tuple[float, ...]:
    """Seconds of each step: those of the rank that took longest."""
    steps = [report.step_seconds for report in reports if report.step_seconds]
    return tuple(max(one) for one in zip(*steps, strict=True))


def environment() -> Mapping[str, str]:
    """One thread a rank; nothing is compiled, for steps are few; one node talks to itself."""
    ours = {"OMP_NUM_THREADS": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1", "TORCHDYNAMO_DISABLE": "1"}
    if Path("/sys/class/net/lo").exists():
        ours["GLOO_SOCKET_IFNAME"] = "lo"
    return {**os.environ, **ours}


def _line(reader: int, until: float) -> bytes | None:
    """What comes up to the end of a line, or of the pipe; null: neither comes in time."""
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([reader], [], [], max(0.0, until - monotonic()))
        if not ready:
            return None
        part = os.read(reader, 1 << 16)
        if not part:
            break
        line += part
    return line


class HasLayout(Protocol):
    """What is run."""

    @property
    def job(self) -> Job:
        """On a cluster with one GPU for each process."""

    @property
    def layout(self) -> Layout:
        """Of all processes."""


@dataclass(frozen=True, slots=True)
class CountedRuns:
    """Trains some steps of a layout, and counts in the last of them."""

    trainers: Trainers
    steps: int = 3
    deadline_seconds: float = 300.0

    def __call__(self, one: HasLayout) -> tuple[Sequence[RankReport], float] | str:
        """What each rank saw, and seconds from start to end; or how a signal ended one, twice.

        Raises:
            TrainingFailedError: A rank failed, hung or computed no number.
        """
        request, ended = _request(self.trainers.trainer, one.job, one.layout, self.steps), ""
        for _ in range(TRIES):
            started = time.monotonic()
            try:
                reports = self.trainers.run(request, one.layout.world_size, self.deadline_seconds)
            except TrainingFailedError as error:
                if not error.by_signal:
                    raise
                ended = str(error)
            else:
                return reports, time.monotonic() - started
        return ended


def refusing(trainer: TrainerName) -> Callable[[Job, Layout], str | None]:
    """What the trainer cannot run of a job and a layout, and why."""
    return lambda job, layout: refusal(_request(trainer, job, layout, 1))


def _request(trainer: TrainerName, job: Job, layout: Layout, steps: int) -> TrainingRequest:
    return TrainingRequest(trainer=trainer, job=job, layout=layout, steps=steps, count=True)

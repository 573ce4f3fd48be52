"""Starts the processes that measure, watches them, and ends them all when one does not go on.

torch is imported by the processes alone, never here.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import IO

from trainplan.costmodel.base import PlanError, SpecError
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.host import usable_cores
from trainplan.profiler.journal import Interrupted, JournalContent, JournalFile, TaskName
from trainplan.profiler.launch.local import Orders, start_ranks
from trainplan.profiler.launch.nodes import FaultError, Nodes
from trainplan.profiler.launch.paths import START_SECONDS, Files, Launch
from trainplan.profiler.task import Request
from trainplan.profiler.watch import (
    KEPT,
    Awake,
    Fault,
    Limits,
    Progress,
    StopSignals,
    Watch,
    die_with_parent,
    died,
    hung,
    kill,
    main_thread,
    only_run,
    read_beats,
    run_folder,
    signal_name,
)

POLL_SECONDS = 0.1
CPU_PROCESSES = 2
LEAST_START_SECONDS = 15.0
"""With less of a budget left no fresh processes start.

Source: derived. They import torch and connect in 5 to 15 s, and nothing is left for tasks.
"""
COUNT_GPUS = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


class StoppedByUser(KeyboardInterrupt):
    """The run was told to end, and has."""

    def __init__(self, sent: signal.Signals, progress: Progress | None = None) -> None:
        super().__init__()
        self.sent, self.progress = sent, progress


def run(
    request: Request,
    where: Launch,
    files: Files,
    on_progress: Callable[[Progress], object],
    module: str = "trainplan.profiler.launch.session",
    *,
    restart: bool = False,
) -> JournalContent | None:
    """Measure what the journal does not have yet; null on nodes other than the first.

    `restart` drops the journal of an earlier run, once no other run can be writing it.

    Raises:
        ProfilerError: A process died or hung, here or on another node, torch is absent, another run
            is at work, or the journal cannot be removed.
        SpecError: The processes refuse: the journal is of something else, more processes than GPUs.
        StoppedByUser: Ctrl-C, SIGTERM or SIGHUP; no process is left.
    """
    need_torch()
    with ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        if where.node_rank == 0:
            stack.enter_context(only_run(files.lock))
        if where.node_rank == 0 and restart:
            JournalFile(files.journal).remove()
        try:
            nodes = stack.enter_context(Nodes(where, stop.sleep, Awake()))
        except KeyboardInterrupt as error:
            raise StoppedByUser(stop.sent or signal.SIGINT) from error
        Run(request, where, files, module, on_progress, nodes, stop).go()
        return JournalFile(files.journal).content() if where.node_rank == 0 else None


@dataclass(slots=True)
class Run:
    """One run, as this node sees it."""

    request: Request
    where: Launch
    files: Files
    module: str
    on_progress: Callable[[Progress], object]
    nodes: Nodes
    stop: StopSignals
    progress: Progress | None = None

    def go(self) -> None:
        """Launch ranks until all is measured; the other nodes are told how it ends here.

        Raises:
            PlanError, StoppedByUser: As `run`.
        """
        launch = 0
        try:
            while not self._measured(launch) and not self._spent():
                launch += 1  # fresh processes go on from the journal; each launch settles some task
        except FaultError as error:
            self.nodes.tell(error.fault)
            raise
        except PlanError as error:
            self.nodes.tell(Fault(f"{self._me} refuses: {error}"))
            raise
        except KeyboardInterrupt as error:
            sent = self.stop.sent or signal.SIGINT
            self.nodes.tell(Fault(f"{self._me} was ended by {sent.name}: {KEPT}"))
            raise StoppedByUser(sent, self.progress) from error
        self.nodes.tell_done()

    def _spent(self) -> bool:
        """Is too little of the budget left to start again? Node 0 says so for all."""
        budget = None if self.where.node_rank else self.where.budget
        return budget is not None and monotonic() >= budget.until - LEAST_START_SECONDS

    @property
    def _me(self) -> str:
        return f"node {self.where.node_rank} ({self.nodes.host})"

    def _measured(self, launch: int) -> bool:
        """Start ranks and wait for their end; false where fresh ones have to go on."""
        meeting = self.nodes.meet(launch)
        if meeting is None:
            return True
        started: dict[int, Popen[bytes]] = {}
        with run_folder() as folder:
            orders = Orders(self.module, folder, self.files.journal)
            orders.request.write_text(self.request.model_dump_json(), "utf-8")
            try:
                start_ranks(orders, self.where, meeting, started)
                self._watch(folder, started)
            except BaseException as error:
                _end(started, error)
                if not (isinstance(error, FaultError) and error.fault.of_task):
                    self._forgive(folder)
                raise
            _end(started)
            return all(beat.phase == "finished" for beat in read_beats(folder))

    def _watch(self, folder: Path, started: Mapping[int, Popen[bytes]]) -> None:
        """Return when all ranks have done their part.

        Raises:
            FaultError: They ended before they were done, or do not go on, here or elsewhere.
            SpecError: They refuse.
            KeyboardInterrupt: This process is told to end.
        """
        limits = Limits(self.where.timeout_seconds, self.where.start_seconds)
        pids = {rank: process.pid for rank, process in started.items()}
        watch = Watch(folder, self.nodes.host, pids, limits, self.where.nnodes, self.nodes.now)
        while not watch.over():
            self.stop.sleep(POLL_SECONDS)
            codes = {rank: process.poll() for rank, process in started.items()}
            watch.look({rank: code for rank, code in codes.items() if code is not None})
            if watch.progress and watch.progress != self.progress:
                self.progress = watch.progress
                self.on_progress(self.progress)
            if watch.refusal:
                raise SpecError(watch.refusal)
            if fault := died(watch) or self.nodes.look():
                raise FaultError(fault)
            if watch.overdue():
                raise FaultError(hung(watch))

    def _forgive(self, folder: Path) -> None:
        """The run ended through no fault of the task it was in."""
        if self.where.node_rank:
            return
        journal = JournalFile(self.files.journal)
        content = journal.content()
        for beat in read_beats(folder):
            name = TaskName(beat.item, beat.key)
            if beat.rank == 0 and content is not None and name in content.starts:
                journal.append(Interrupted(item=name.item, key=name.key))


def _end(started: Mapping[int, Popen[bytes]], error: BaseException | None = None) -> None:
    """End the ranks, and what they started.

    Raises:
        ProfilerError: Some stay though they are killed.
    """
    left = kill(tuple(started.values()))
    if left:
        before = f"{error}; " if error else ""
        raise ProfilerError(
            f"{before}process {left[0]} does not end though killed: it waits in the kernel for a "
            "driver or a file system"
        ) from error


def need_torch() -> None:
    """Say how to get torch where it is absent.

    Raises:
        ProfilerError: It is.
    """
    if find_spec("torch") is None:
        raise ProfilerError("measuring needs torch: pip install 'trainplan[profile]'")


def num_gpus(
    limits: Limits = Limits(60.0, START_SECONDS),  # noqa: B008 (frozen)
    pause: Callable[[float], object] = sleep,
) -> int:
    """GPUs that torch may use on this node, asked in another process.

    Args:
        limits: Longest time to load torch, and to do nothing meanwhile.
        pause: Waits; raises where this process is told to end.

    Raises:
        ProfilerError: torch is absent, does not load, or not in that time.
    """
    need_torch()
    with TemporaryFile() as output, TemporaryFile() as why:
        code = _answer_of(COUNT_GPUS, output, why, limits, pause)
        answer, words = (_text(file) for file in (output, why))
    if code is None:
        raise ProfilerError(
            f"torch did not list its GPUs: no work for {limits.timeout_seconds:g} s (--timeout) "
            f"or no end in {limits.start_seconds:g} s (--start-timeout); a driver that hangs stops "
            "all that use it: does `nvidia-smi` answer?"
        )
    if code < 0:
        raise ProfilerError(
            f"the process that loads torch was killed by {signal_name(-code)}: look whether memory "
            "ran out or a driver failed (`dmesg`), and give the command again"
        )
    if code or not answer.isdecimal():
        last = (words.splitlines() or ["no reason given"])[-1]
        raise ProfilerError(f"torch does not load: {last}; install it anew")
    return int(answer)


def _answer_of(
    program: str,
    output: IO[bytes],
    why: IO[bytes],
    limits: Limits,
    pause: Callable[[float], object],
) -> int | None:
    """Exit code of a program in Python; null where it does not end in time."""
    process = Popen(
        [sys.executable, "-c", program],
        stdin=DEVNULL,
        stdout=output,
        stderr=why,
        start_new_session=True,
        preexec_fn=partial(  # noqa: PLW1509 (takes no lock)
            die_with_parent, signal.SIGKILL, os.getpid()
        ),
    )
    now, seen = Awake(), main_thread(process.pid)
    begin = worked = now()
    try:
        while process.poll() is None and now() < begin + limits.start_seconds:
            if (thread := main_thread(process.pid)) != seen or thread is None:
                seen, worked = thread, now()
            if now() > worked + limits.timeout_seconds:
                break
            pause(POLL_SECONDS / 2)
    finally:
        code = process.poll()
        kill((process,))
    return code


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace").strip()


def default_nproc(gpus: int) -> int:
    """Processes of a node: one for each of its GPUs, or two on the CPU."""
    return gpus or min(CPU_PROCESSES, usable_cores())

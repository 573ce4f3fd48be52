"""Starts the processes that measure, watches them, and ends them all when one does not go on.

torch is imported by the processes alone, never here.
"""

from __future__ import annotations

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
from subprocess import run as run_process
from tempfile import TemporaryDirectory
from time import sleep

from trainplan.costmodel.base import SpecError
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.host.cores import usable_cores
from trainplan.profiler.journal.file import JournalFile
from trainplan.profiler.journal.lock import only_run
from trainplan.profiler.journal.records import Interrupted, JournalContent, TaskName
from trainplan.profiler.task import Request
from trainplan.profiler.watch.heartbeat import read_beats
from trainplan.profiler.watch.processes import die_with_parent, end
from trainplan.profiler.watch.watch import Progress, Watch, died, hung

POLL_SECONDS = 0.1
CPU_PROCESSES = 2
COUNT_GPUS = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


@dataclass(frozen=True, slots=True)
class Launch:
    """Processes of a run, and this node's part in it."""

    nproc_per_node: int
    nnodes: int = 1
    node_rank: int = 0
    """Node 0 writes the journal."""
    rdzv_endpoint: str = ""
    """`host:port` of node 0, where there are several nodes."""
    timeout_seconds: float = 60.0
    """Longest time for one task."""


@dataclass(frozen=True, slots=True)
class Files:
    """What a run writes, on node 0."""

    journal: Path
    lock: Path

    @classmethod
    def beside(cls, output: Path) -> Files:
        """Their names begin with that of the output."""
        return cls(
            output.with_name(f"{output.name}.journal.jsonl"),
            output.with_name(f"{output.name}.lock"),
        )


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
        ProfilerError: A process died or hung, torch is absent, another run is at work, or the
            journal cannot be removed.
        SpecError: The processes refuse: the journal is of something else, more processes than GPUs.
    """
    need_torch()
    with ExitStack() as stack:
        if where.node_rank == 0:
            stack.enter_context(only_run(files.lock))
        if where.node_rank == 0 and restart:
            JournalFile(files.journal).remove()
        while not _measured(request, where, files, on_progress, module):
            pass  # fresh processes go on from the journal; every launch settles some task
        return JournalFile(files.journal).content() if where.node_rank == 0 else None


def need_torch() -> None:
    """Say how to get torch where it is absent.

    Raises:
        ProfilerError: It is.
    """
    if find_spec("torch") is None:
        raise ProfilerError("measuring needs torch: pip install 'trainplan[profile]'")


def num_gpus() -> int:
    """GPUs that torch may use on this node, asked in another process.

    Raises:
        ProfilerError: torch is absent or does not load.
    """
    need_torch()
    asked = run_process(
        [sys.executable, "-c", COUNT_GPUS], capture_output=True, text=True, check=False
    )
    if asked.returncode or not asked.stdout.strip().isdecimal():
        last = asked.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise ProfilerError(f"torch does not load: {last[0]}; install it anew")
    return int(asked.stdout)


def default_nproc(gpus: int) -> int:
    """Processes of a node: one for each of its GPUs, or two on the CPU."""
    return gpus or min(CPU_PROCESSES, usable_cores())


def _measured(
    request: Request,
    where: Launch,
    files: Files,
    on_progress: Callable[[Progress], object],
    module: str,
) -> bool:
    """Start processes and wait for their end; false where fresh ones have to go on."""
    with TemporaryDirectory(prefix="trainplan-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "request.json").write_text(request.model_dump_json(), "utf-8")
        process = _start(_command(where, files, folder, module), where, folder)
        try:
            _wait(process, Watch(folder, where.timeout_seconds), on_progress)
        except KeyboardInterrupt:
            _end_all(process, folder)
            if where.node_rank == 0:
                _forgive(JournalFile(files.journal), folder)
            raise
        finally:
            _end_all(process, folder)
        return all(beat.phase == "finished" for beat in read_beats(folder))


def _command(where: Launch, files: Files, folder: Path, module: str) -> list[str]:
    rendezvous = ["--standalone"]
    if where.nnodes > 1:
        # of torchrun's rendezvous only the static one keeps the ranks where the user put them
        rendezvous = [
            *("--nnodes", str(where.nnodes), "--node-rank", str(where.node_rank)),
            *("--rdzv-backend", "static", "--rdzv-endpoint", where.rdzv_endpoint),
        ]
    return [
        *(sys.executable, "-m", "torch.distributed.run", *rendezvous),
        *("--nproc-per-node", str(where.nproc_per_node), "-m", module),
        *("--request", str(folder / "request.json"), "--journal", str(files.journal.absolute())),
        *("--status", str(folder), "--deadline", str(where.timeout_seconds)),
    ]


def _start(command: list[str], where: Launch, folder: Path) -> Popen[bytes]:
    with (folder / "output.txt").open("wb") as output:
        return Popen(
            command,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            env=_environment(where),
            start_new_session=True,
            preexec_fn=partial(die_with_parent, signal.SIGTERM),  # noqa: PLW1509 (takes no lock)
        )


def _environment(where: Launch) -> Mapping[str, str]:
    """The user's variables go first; cores are shared out, and one node talks to itself."""
    threads = max(1, usable_cores() // where.nproc_per_node)
    ours = {"OMP_NUM_THREADS": str(threads)}
    if where.nnodes == 1 and Path("/sys/class/net/lo").exists():
        ours["GLOO_SOCKET_IFNAME"] = "lo"
    return {**ours, **os.environ}


def _wait(process: Popen[bytes], watch: Watch, on_progress: Callable[[Progress], object]) -> None:
    """Return when all processes ended well.

    Raises:
        ProfilerError: They ended before they were done, or do not go on.
        SpecError: They refuse.
    """
    reported = None
    running = True
    while running:
        running = process.poll() is None
        watch.look()
        if watch.progress and watch.progress != reported:
            reported = watch.progress
            on_progress(reported)
        if running and watch.overdue():
            raise ProfilerError(hung(watch))
        sleep(POLL_SECONDS if running else 0)
    for beat in watch.beats:
        if beat.phase == "refused":
            raise SpecError(beat.detail)
    if process.returncode or not watch.beats:
        output = (watch.folder / "output.txt").read_text("utf-8", errors="replace")
        raise ProfilerError(died(watch.beats, output))


def _end_all(process: Popen[bytes], folder: Path) -> None:
    """The processes lead groups of their own, so each one is ended by its number."""
    beats = read_beats(folder)
    end(process, [beat.pid for beat in beats if beat.phase != "finished" and not beat.ended])


def _forgive(journal: JournalFile, folder: Path) -> None:
    """The user stopped the run: no fault of the task it was in."""
    content = journal.content()
    for beat in read_beats(folder):
        name = TaskName(beat.item, beat.key)
        if beat.rank == 0 and content is not None and name in content.starts:
            journal.append(Interrupted(item=name.item, key=name.key))

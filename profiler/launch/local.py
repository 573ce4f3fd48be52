"""The ranks of this node: how they are started."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen

from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.host import usable_cores
from trainplan.profiler.launch.nodes import Meeting
from trainplan.profiler.launch.paths import Launch
from trainplan.profiler.watch import die_with_parent


@dataclass(frozen=True, slots=True)
class Orders:
    """What all ranks of a run are told."""

    module: str
    folder: Path
    """Of the request, the beats and the outputs."""
    journal: Path

    @property
    def request(self) -> Path:
        """File of the request."""
        return self.folder / "request.json"


def start_ranks(
    orders: Orders, where: Launch, meeting: Meeting, started: dict[int, Popen[bytes]]
) -> None:
    """Start a process for each rank of this node, and add it to `started` at once.

    Raises:
        ProfilerError: The system has no room for one more.
    """
    try:
        for rank in where.ranks:
            started[rank] = _started(orders, where, meeting, rank)
    except OSError as error:
        raise ProfilerError(
            f"rank {rank} cannot be started ({error.strerror}): make room, or start fewer "
            "processes per node"
        ) from error


def _started(orders: Orders, where: Launch, meeting: Meeting, rank: int) -> Popen[bytes]:
    listening = meeting.listening if rank == 0 else None
    with (orders.folder / f"output-{rank}.txt").open("wb") as output:
        return Popen(
            [*_command(orders, where), *_meets_at(listening)],
            stdin=DEVNULL,
            stdout=output,
            stderr=STDOUT,
            env=_environment(where, meeting, rank),
            pass_fds=() if listening is None else (listening,),
            start_new_session=True,
            preexec_fn=partial(  # noqa: PLW1509 (takes no lock)
                die_with_parent, signal.SIGKILL, os.getpid()
            ),
        )


def _command(orders: Orders, where: Launch) -> Iterator[str]:
    yield from (sys.executable, "-u", "-m", orders.module)
    yield from ("--request", str(orders.request), "--journal", str(orders.journal.absolute()))
    yield from ("--status", str(orders.folder), "--parent", str(os.getpid()))
    yield from ("--deadline", str(where.timeout_seconds), "--start", str(where.start_seconds))
    if where.budget and where.node_rank == 0:
        yield from ("--budget", repr(where.budget.seconds), repr(where.budget.until))


def _meets_at(listening: int | None) -> tuple[str, ...]:
    return () if listening is None else ("--listening", str(listening))


def _environment(where: Launch, meeting: Meeting, rank: int) -> Mapping[str, str]:
    """The user's variables go before our defaults; who a rank is goes before all.

    Source of the variables and of error handling in NCCL: torch/distributed/elastic/agent/server/
    local_elastic_agent.py, `_start_workers`.
    """
    threads = max(1, usable_cores() // where.nproc_per_node)
    ours = {"OMP_NUM_THREADS": str(threads), "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if where.nnodes == 1 and Path("/sys/class/net/lo").exists():
        ours["GLOO_SOCKET_IFNAME"] = "lo"
    placed = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % where.nproc_per_node),
        "WORLD_SIZE": str(where.nnodes * where.nproc_per_node),
        "LOCAL_WORLD_SIZE": str(where.nproc_per_node),
        "MASTER_ADDR": meeting.host,
        "MASTER_PORT": str(meeting.port),
    }
    return {**ours, **os.environ, **placed}

"""What is started on which nodes, and the folder of beats and outputs that a run writes.

What killed runs left is removed by the next one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from trainplan.costmodel.base import SpecError
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.launch.scheduler import Budget

START_SECONDS = 300.0
"""Until all nodes are there, and then until all ranks have loaded their libraries.

Source: assumed. torch's own agents wait as long for each other: torch/distributed/elastic/agent/
server/api.py, `exit_barrier_timeout`.
"""


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
    start_seconds: float = START_SECONDS
    budget: Budget | None = None
    """Of the whole run, start included, which node 0 keeps; none: all is measured."""

    @property
    def ranks(self) -> range:
        """Those of this node."""
        first = self.node_rank * self.nproc_per_node
        return range(first, first + self.nproc_per_node)

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of node 0.

        Raises:
            SpecError: The text is no `host:port`.
        """
        host, _, port = self.rdzv_endpoint.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise SpecError(
                f"--rdzv-endpoint {self.rdzv_endpoint!r} is no HOST:PORT: give the address of "
                "node 0 and a port that is free there, node0:6000"
            )
        return host, int(port)


@dataclass(frozen=True, slots=True)
class Files:
    """What a run writes, on node 0."""

    journal: Path
    lock: Path

    @classmethod
    def of_output(cls, output: Path) -> Files:
        """Their names begin with that of the output."""
        return cls(
            output.with_name(f"{output.name}.journal.jsonl"),
            output.with_name(f"{output.name}.lock"),
        )


PREFIX = "trainplan-run-"
ALIVE = "alive"
"""File that a run holds a lock on while it lives: the system frees it, whatever ends the run."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """A new folder, gone when the body ends; before it those of runs that were killed.

    Raises:
        ProfilerError: It cannot be made.
    """
    for left in Path(gettempdir()).glob(f"{PREFIX}*"):
        _remove_abandoned(left)
    try:
        folder = Path(mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise ProfilerError(
            f"no folder can be made in {gettempdir()} ({error.strerror}): set TMPDIR to another"
        ) from error
    held = _hold(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def _hold(folder: Path) -> int | None:
    """The lock is there before the file has its name; null where there are no locks."""
    with suppress(OSError, ImportError):
        from fcntl import LOCK_EX, flock  # noqa: PLC0415 (not on Windows)

        draft = folder / f"{ALIVE}.draft"
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT)
        flock(descriptor, LOCK_EX)
        draft.replace(folder / ALIVE)
        return descriptor
    return None


def _remove_abandoned(folder: Path) -> None:
    """Only where the lock of its run is free; folders of others cannot be looked into."""
    with suppress(OSError, ImportError):
        from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 (not on Windows)

        descriptor = os.open(folder / ALIVE, os.O_RDWR | os.O_NOFOLLOW)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)

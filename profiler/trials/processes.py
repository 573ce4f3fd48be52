"""Processes of a trial, found wherever they went, and ended to the last one.

A process is of a trial when it is in the session of the first one, descends from it, or carries
the trial's mark in its environment, which children inherit whatever group, session or parent they
choose. Only Linux lists processes so; elsewhere the group of the first one is ended.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

MARK = "TRAINPLAN_TRIAL"
"""Environment variable that marks the processes of a trial."""
NOBODY = -1
"""Number of no process."""
POLL_SECONDS = 0.05
FORCE_SECONDS = 30.0
"""How long a killed process may take to go: a driver frees the memory of a GPU first."""


@dataclass(frozen=True, slots=True)
class Process:
    """A line of the system's table."""

    pid: int
    parent: int
    session: int
    begun: int
    """Ticks from the start of the machine to its own: another process of this number has others."""


def table() -> Iterator[Process]:
    """All processes that are no zombies.

    Source: Linux manual, proc_pid_stat(5): state, parent, group and session behind the name, and
    the 22nd field, its start.
    """
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            if fields[0] not in "ZX":
                yield Process(int(folder.name), int(fields[1]), int(fields[3]), int(fields[19]))


def of_trial(leader: int, mark: str, known: frozenset[Process] = frozenset()) -> frozenset[Process]:
    """The processes of a trial that are alive.

    The first one, dead or alive, has to be unreaped: its number could else be a stranger's. One
    that is `known` stays one to its end: while a process dies its environment goes first, and files
    such as a GPU later.
    """
    rows = tuple(table())
    before = {(one.pid, one.begun) for one in known}
    found = {
        row.pid
        for row in rows
        if leader in (row.pid, row.session) or (row.pid, row.begun) in before
    }
    found |= {row.pid for row in rows if row.pid not in found and _carries(row.pid, mark)}
    grew = True
    while grew:
        children = {row.pid for row in rows if row.parent in found} - found
        found |= children
        grew = bool(children)
    return frozenset(row for row in rows if row.pid in found - {os.getpid()})


def _carries(pid: int, mark: str) -> bool:
    with suppress(OSError):
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def end_all(leader: int, mark: str, grace_s: float) -> tuple[int, ...]:
    """Ask the processes of a trial to end, then end them; numbers of those left all the same."""
    if sys.platform != "linux":
        if leader != NOBODY:
            _signal_group(leader, grace_s)
        return ()
    left = _sent(leader, mark, signal.SIGTERM, grace_s, again=False)
    if left:
        left = _sent(leader, mark, signal.SIGKILL, FORCE_SECONDS, again=True)
    return tuple(sorted(one.pid for one in left))


def _sent(
    leader: int, mark: str, sent: signal.Signals, seconds: float, *, again: bool
) -> frozenset[Process]:
    """Send to all, to those that come later as well where `again`; who is left after a while."""
    until = monotonic() + seconds
    left = of_trial(leader, mark)
    signalled: frozenset[Process] = frozenset()
    while left:
        for one in left if again else left - signalled:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, sent)
        signalled |= left
        left = of_trial(leader, mark, signalled)
        if monotonic() >= until:
            break
        sleep(POLL_SECONDS if left else 0)
    return left


def _signal_group(leader: int, grace_s: float) -> None:
    for sent, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 0.0)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, sent)
            sleep(seconds)

"""Child processes: they end with their parent, are looked at, and are ended."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from time import monotonic

GRACE_SECONDS = 3.0
PR_SET_PDEATHSIG = 1
"""Source: Linux manual, prctl(2)."""


def die_with_parent(sent: signal.Signals, parent: int | None = None) -> None:
    """Let the system send a signal to this process when its parent ends; only Linux can.

    The number of the parent tells one that ended before it was asked.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(sent))
    if parent not in (None, os.getppid()):
        os.kill(os.getpid(), sent)


def end(process: Popen[bytes], others: Iterable[int]) -> None:
    """End a process that leads a group, and others that do, by number."""
    if process.poll() is None:
        _send(process.pid, signal.SIGTERM)
        with suppress(TimeoutExpired):
            process.wait(GRACE_SECONDS)
    for leader in (process.pid, *others):
        _send(leader, signal.SIGKILL)
    process.wait()


def _send(leader: int, sent: signal.Signals) -> None:
    """To all of a process group; one that is gone, or is not ours, is let be."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, sent)


def kill(processes: Sequence[Popen[bytes]]) -> tuple[int, ...]:
    """End processes that lead groups, with their groups; numbers of those that stay.

    What waits in the kernel, for a driver or a file system, does not even end when killed.
    """
    for process in processes:
        _send(process.pid, signal.SIGKILL)
    until = monotonic() + GRACE_SECONDS
    left = []
    for process in processes:
        try:
            process.wait(max(0.0, until - monotonic()))
        except TimeoutExpired:
            left.append(process.pid)
    return tuple(left)


@dataclass(frozen=True, slots=True)
class MainThread:
    """What the system tells of the first thread of a process."""

    stopped: bool
    """By SIGSTOP or Ctrl-Z, or held by a debugger."""
    work: tuple[int, ...]
    """Faults of pages, and ticks of a processor: stands still where the thread waits."""


def main_thread(pid: int, system: Path = Path("/proc")) -> MainThread | None:
    """Null where the process is gone or the system does not tell.

    Source: Linux manual, proc_pid_stat(5): behind the name state is field 3, minflt and majflt are
    10 and 12, utime and stime 14 and 15.
    """
    with suppress(OSError, ValueError, IndexError):
        line = (system / f"{pid}/task/{pid}/stat").read_text("utf-8", "replace")
        fields = line.rpartition(")")[2].split()
        return MainThread(fields[0] in "Tt", tuple(int(fields[at]) for at in (7, 9, 11, 12)))
    return None


def signal_name(number: int) -> str:
    """`SIGKILL` of 9; a number that has none stays one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def memory_kills(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """Processes that the system has killed for want of memory since it started; null: unknown.

    Source: Linux, mm/oom_kill.c: `count_vm_event(OOM_KILL)` for the host and for a cgroup alike.
    """
    with suppress(OSError, ValueError):
        for line in vmstat.read_text("ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None

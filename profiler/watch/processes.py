"""Child processes that end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from subprocess import Popen, TimeoutExpired

GRACE_SECONDS = 3.0
PR_SET_PDEATHSIG = 1
"""Source: Linux manual, prctl(2)."""


def die_with_parent(sent: signal.Signals) -> None:
    """Let the system send a signal to this process when its parent ends; only Linux can."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(sent))


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

"""How long a command has run: a time limit counts what Python takes to start and to import."""

import os
import sys
import time
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

PROC = Path("/proc/self/stat")
STARTED = 19
"""Place of `starttime`, in clock ticks since boot, behind the name. Source: the Linux manual,
proc_pid_stat(5)."""
OWN_PROCESS: ContextVar[bool] = ContextVar("OWN_PROCESS", default=False)
"""Is this process there for one command, which `main` knows?"""


def command_seconds() -> float:
    """Since this process began; 0 where it does more than one command.

    Where the system does not state it, seconds of its processor are used: no more than those.
    """
    if not OWN_PROCESS.get():
        return 0.0
    age = time.process_time()
    if sys.platform == "linux":
        with suppress(OSError, ValueError, IndexError):
            ticks = int(PROC.read_text("utf-8", "replace").rpartition(")")[2].split()[STARTED])
            age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return age

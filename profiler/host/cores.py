"""How many cores this process may run on, and how many of them others use."""

import os
from collections.abc import Mapping
from pathlib import Path
from time import sleep

COUNTED = 8
"""Ticks of a core for user, nice, system, idle, waiting for input, two kinds of interrupt, and
stolen by other virtual machines; guests, which follow, are in those of users.

Source: Linux manual, proc_stat(5).
"""
IDLE = slice(3, 5)


def usable_cores() -> int:
    """Cores that containers and job schedulers leave to this process; at least one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy_cores(seconds: float, system: Path = Path("/")) -> float | None:
    """Usable cores that anyone used while this process slept for so long, in the mean.

    None where the system does not say. `system` is the root of what is read.
    """
    before = _ticks(system)
    sleep(seconds)
    after = _ticks(system)
    counted = [
        (busy - before[core][0], whole - before[core][1])
        for core, (busy, whole) in after.items()
        if core in before
    ]
    shares = [busy / whole for busy, whole in counted if whole > 0]
    return sum(shares) if shares else None


def _ticks(system: Path) -> Mapping[str, tuple[int, int]]:
    """Busy and all ticks of each usable core since the system started; empty if it does not say."""
    try:
        lines = (system / "proc/stat").read_text("ascii").splitlines()
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    except (OSError, AttributeError, UnicodeDecodeError):
        return {}
    found = {}
    for name, *fields in (line.split() for line in lines if line.startswith("cpu")):
        ticks = [int(field) for field in fields[:COUNTED]]
        if name in names:
            found[name] = sum(ticks) - sum(ticks[IDLE]), sum(ticks)
    return found

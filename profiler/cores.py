"""How many cores this process may run on."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that containers and job schedulers leave to this process; at least one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

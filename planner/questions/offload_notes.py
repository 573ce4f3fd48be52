"""Notes on what a layout keeps off the GPUs: what was not checked, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from trainplan.costmodel.base import GIB
from trainplan.costmodel.measured.host import host_notes
from trainplan.costmodel.spec import Layout
from trainplan.costmodel.spec.evidence.profile import Profile
from trainplan.costmodel.step import Estimate

HOW = "`host: {memory_gib: ...}` in a cluster file, or `@dgx-h100` behind a short form"


def host_change(least_host_bytes: float | None) -> str | None:
    """What of the host makes a layout fit that has room on the GPUs; none where that is not it."""
    if least_host_bytes is None:
        return None
    needed = f"{ceil(least_host_bytes / GIB):,}"
    return (
        f"a host of at least {needed} GiB a node (host.memory_gib), or drives for it (host.drives)"
    )


def offload_notes(layout: Layout, estimate: Estimate, profile: Profile | None) -> Iterator[str]:
    """One sentence each: memory that nobody stated, and speeds that the profile lacks."""
    node = estimate.memory.host
    if node.host_bytes and node.host_capacity_bytes is None:
        yield (
            "host memory unknown: not checked, and a node needs "
            f"{node.host_bytes / GIB:,.0f} GiB of it ({HOW})"
        )
    yield from host_notes(layout, profile)

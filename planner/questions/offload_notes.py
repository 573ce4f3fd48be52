"""Notes on what a layout keeps off the GPUs: what was not checked, and what would make it fit."""

from collections.abc import Iterator
from math import ceil

from trainplan.costmodel.axes import has_drives
from trainplan.costmodel.base import GIB, SpecError
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.measured import host_notes
from trainplan.costmodel.profiles import Profile
from trainplan.costmodel.step import Estimate

HOW = "`host: {memory_gib: ...}` in a cluster file, or `@dgx-h100` behind a short form"


def check_drives(on: Context) -> None:
    """Does every node have drives, where the runtime keeps states nowhere else?

    Raises:
        SpecError: It has none of known speed.
    """
    if "cpu" not in on.traits.offloading.tiers and not has_drives(on.job):
        raise SpecError(
            f"{on.job.runtime} keeps its states on drives: give every node group of the cluster "
            "host.drives with tb, read_gb_per_s and write_gb_per_s"
        )


def host_change(on: Context, least_host_bytes: float | None) -> str | None:
    """What of the host makes a layout fit that has room on the GPUs; none where that is not it."""
    if least_host_bytes is None:
        return None
    change = f"a host of at least {ceil(least_host_bytes / GIB):,} GiB a node (host.memory_gib)"
    more = "nvme" in on.traits.offloading.tiers and not has_drives(on.job)
    return f"{change}, or drives for it (host.drives)" if more else change


def offload_notes(layout: Layout, estimate: Estimate, profile: Profile | None) -> Iterator[str]:
    """One sentence each: memory that was not stated, and speeds that the profile lacks."""
    node = estimate.memory.host
    if node.host_bytes and node.host_capacity_bytes is None:
        yield (
            "host memory unknown: not checked, and a node needs at least "
            f"{node.host_bytes / GIB:,.0f} GiB of it ({HOW})"
        )
    yield from host_notes(layout, profile)

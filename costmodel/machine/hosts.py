"""Host and drives of a node as the numbers formulas use, and memory left to another tenant.

The other tenant takes memory alone: when it computes, the job waits (colocated rollout engines and
trainers take turns), so no speed is divided. Margins are shares of what is left.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GB, GIB, TERA, SpecError
from trainplan.costmodel.hardware import DriveSpec, NodeGroup
from trainplan.costmodel.machine.hardware import Provenance
from trainplan.costmodel.machine.machine import Drives, Machine

HOST_EFFICIENCY = 0.8
"""Share of the nominal bandwidth of its link that a long copy from or to pinned memory reaches.

Source: mean of copies in one direction. PCIe 3.0, of 16 GB/s: 12.4 (NVIDIA/nvbandwidth@04bf2869
README.md), 12.0 (arXiv:2104.07857, figure 2b: 3.0 a GPU, four on a link), 12.4 and 13.1 (P100,
jdh4/della-gpu-A100 README.md); PCIe 4.0, of 32: 25.8 (A100, there, too), 24.8
(forums.developer.nvidia.com/t/352186, A100 SXM); PCIe 5.0, of 64: 55.3 (tests/replay, H200).
"""


class HostFigures(TypedDict):
    """Fields of `Machine` that are of the host; null where not known."""

    host_memory_bytes: float | None
    cpu_adam_params_per_second: float | None
    drives: Drives | None


def host_link(group: NodeGroup, link_bytes_per_second: float) -> float:
    """Bytes per second between a GPU and the host while all GPUs of its node copy.

    Source: derived; of the link's nominal bandwidth HOST_EFFICIENCY is reached; GPUs below one
    switch share its link evenly, and a byte that crosses one is read from, or written to, host
    memory once.
    """
    host, reached = catalog.host_of(group), HOST_EFFICIENCY * link_bytes_per_second
    if host is None:
        return reached
    shared = reached / min(host.gpus_per_switch or 1, group.gpus_per_node)
    if host.memory_gb_per_s is None:
        return shared
    return min(shared, host.memory_gb_per_s * GB / group.gpus_per_node)


def launch_factor(group: NodeGroup, usual: float) -> float:
    """Launch time of a group's host over that of an x86 server; `usual` of the GPU's usual node."""
    host = catalog.host_of(group)
    return usual if host is None or host.launch_factor is None else host.launch_factor


def host_figures(group: NodeGroup, trace: list[Provenance]) -> HostFigures:
    """What is known of the host of a group; where it comes from goes to a trace.

    Raises:
        CatalogError: No host has the name that it is stated to be like.
    """
    host = catalog.host_of(group)
    if host is None:
        return {"host_memory_bytes": None, "cpu_adam_params_per_second": None, "drives": None}
    source = f"host {host.like} of the catalog, and your cluster" if host.like else "your cluster"
    trace.append(Provenance(f"{group.gpu} host", "datasheet", source))
    return {
        "host_memory_bytes": host.memory_gib and host.memory_gib * GIB,
        "cpu_adam_params_per_second": host.adam_params_per_s,
        "drives": _together(host.drives) if host.drives else None,
    }


def _together(drives: DriveSpec) -> Drives:
    def of_all(each: float | None, unit: float) -> float | None:
        return None if each is None else drives.count * each * unit

    return Drives(
        space_bytes=drives.count * drives.tb * TERA,
        read_bytes_per_second=of_all(drives.read_gb_per_s, GB),
        write_bytes_per_second=of_all(drives.write_gb_per_s, GB),
        written_bytes=of_all(drives.tb_written, TERA),
    )


def least_host(machines: Sequence[Machine]) -> HostFigures:
    """What every one of some different node groups has at least.

    Source: as `machine_of`: the slowest group sets the pace and the smallest memory decides what
    fits. What one group is not known to have, drives or memory, is not known of all.
    """
    drives = [one.drives for one in machines if one.drives]
    together = None
    if len(drives) == len(machines):
        together = Drives(
            space_bytes=min(one.space_bytes for one in drives),
            read_bytes_per_second=_least([one.read_bytes_per_second for one in drives]),
            write_bytes_per_second=_least([one.write_bytes_per_second for one in drives]),
            written_bytes=_least([one.written_bytes for one in drives]),
            both_bytes_per_second=_least([one.both_bytes_per_second for one in drives]),
        )
    rates = [one.cpu_adam_params_per_second for one in machines]
    return {
        "host_memory_bytes": _least([one.host_memory_bytes for one in machines]),
        "cpu_adam_params_per_second": _least(rates),
        "drives": together,
    }


def _least(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def with_reserve(machine: Machine, reserve_bytes: int, reserve_host_bytes: int = 0) -> Machine:
    """The machine with so much less memory on every GPU, and on the host of every node.

    Source: derived; both tenants hold memory at the same time, so what one keeps the other lacks.

    Raises:
        SpecError: Nothing would be left, or of how much is not known.
    """
    if reserve_bytes:
        left = _left("--reserve", reserve_bytes, machine.memory_bytes, "a GPU")
        machine = replace(machine, memory_bytes=left)
    if not reserve_host_bytes:
        return machine
    if machine.host_memory_bytes is None:
        raise SpecError(
            f"--reserve-host {reserve_host_bytes / GIB:.6g}GiB: the memory of the hosts is not "
            "known: give `host: {memory_gib: ...}` in the cluster file"
        )
    left = _left("--reserve-host", reserve_host_bytes, machine.host_memory_bytes, "a host")
    return replace(machine, host_memory_bytes=left)


def _left(option: str, size: int, memory_bytes: float, owner: str) -> float:
    if size >= memory_bytes:
        raise SpecError(
            f"{option} {size / GIB:.6g}GiB: {owner} has {memory_bytes / GIB:.6g} GiB, so nothing "
            "is left for the job: reserve less"
        )
    return memory_bytes - size

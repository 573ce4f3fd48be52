"""What a profile says of host memory, processors and drives of a node.

Speeds are as measured, sizes as the cluster states them: the profile's stand where it states none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

from trainplan.costmodel.machine import Machine
from trainplan.costmodel.machine.hardware import Provenance
from trainplan.costmodel.machine.hosts import Drives
from trainplan.costmodel.spec import Layout
from trainplan.costmodel.spec.evidence.profile import (
    HOST_COPIES,
    CopyPoint,
    Direction,
    Host,
    OptimizerPoint,
    Point,
    Profile,
)

DRIVE_WAYS: tuple[Direction, ...] = ("nvme_read", "nvme_write")
NOT_OF_A_NODE = frozenset(
    {"9p", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "virtiofs"}
)
"""File systems that other nodes use too: the speed of one node alone is not that of all.

Source: Linux, Documentation/filesystems; GPFS and BeeGFS by the types their own modules register.
"""


class MeasuredHost(TypedDict):
    """Fields of `Machine` that are of the host."""

    host_bytes_per_second: float
    cpu_adam_params_per_second: float | None
    host_memory_bytes: float | None
    drives: Drives | None
    provenance: tuple[Provenance, ...]


def measured_host(machine: Machine, profile: Profile) -> MeasuredHost:
    """The host of a machine as a profile measured it; what it did not measure stays as it is.

    Source: derived; speeds of a profile come before those of a cluster file, as for the NIC in
    `machine_of`; sizes of a cluster file before those of a profile, as for the memory of a GPU.
    """
    adam = cpu_adam_params_per_second(profile.gpus_per_node, profile.points)
    rates = [host_copy_bytes_per_second(way, profile.points) for way in HOST_COPIES]
    copies = [rate for rate in rates if rate is not None]
    drives = _drives(machine.drives, profile)
    memory = machine.host_memory_bytes or host_memory_bytes(profile.hosts)
    taken = {
        "copies to the host": bool(copies),
        "Adam in host memory": adam is not None,
        "host memory": memory is not None and machine.host_memory_bytes is None,
        "drive": drives != machine.drives,
    }
    return {
        "host_bytes_per_second": min(copies, default=machine.host_bytes_per_second),
        "cpu_adam_params_per_second": adam or machine.cpu_adam_params_per_second,
        "host_memory_bytes": memory,
        "drives": drives,
        "provenance": (*machine.provenance, *_sources(profile, taken)),
    }


def host_notes(layout: Layout, profile: Profile | None) -> tuple[str, ...]:
    """What an offloaded layout rests on that a profile did not measure."""
    offload, modules = layout.offload, layout.offload_modules
    moves = offload.optimizer or offload.parameters or offload.checkpoints or modules
    if profile is None or not moves:
        return ()
    points, found = profile.points, []
    if all(host_copy_bytes_per_second(way, points) is None for way in HOST_COPIES):
        found.append("host copies not measured: datasheet; `plan profile --only copies` has them")
    if offload.optimizer and cpu_adam_params_per_second(profile.gpus_per_node, points) is None:
        found.append(
            "Adam in host memory not measured: as published; `plan profile --only cpu_adam` has it"
        )
    deep = "nvme" in (offload.tier if offload.optimizer else None, offload.parameters)
    if deep and any(drive_bytes_per_second(way, points) is None for way in DRIVE_WAYS):
        found.append(
            "drive not measured: as the cluster says; `plan profile --only drive --scratch "
            "DIRECTORY` has it"
        )
    return tuple(found)


def _sources(profile: Profile, taken: dict[str, bool]) -> Iterator[Provenance]:
    source = profile.origins[0].source
    for quantity, measured in taken.items():
        if measured:
            yield Provenance(f"{profile.gpu} {quantity}", "measured", source)


def _drives(known: Drives | None, profile: Profile) -> Drives | None:
    """Drives with the speeds of the one that was measured; null where its room is not known.

    Where the drive is one that several nodes share, those of the cluster stay.
    """
    read, write = (drive_bytes_per_second(way, profile.points) for way in DRIVE_WAYS)
    space = known.space_bytes if known else drive_free_bytes(profile.hosts)
    shared = any(host.drive_file_system in NOT_OF_A_NODE for host in profile.hosts)
    if read is None or write is None or space is None or shared:
        return known
    return Drives(space, read, write, known.written_bytes if known else None)


def cpu_adam_params_per_second(processes: int, points: Sequence[Point]) -> float | None:
    """Parameters per second of all processes of a measured node, each on its share of the cores.

    Source: derived; all update at the same time, so the node does what they do together; smaller
    sizes may lie in caches.
    """
    mine = [
        p
        for p in points
        if isinstance(p, OptimizerPoint) and p.place == "cpu" and p.processes in (None, processes)
    ]
    if not mine:
        return None
    largest = max(mine, key=lambda p: p.num_params)
    return processes * largest.num_params / largest.time.seconds


def host_copy_bytes_per_second(way: Direction, points: Sequence[Point]) -> float | None:
    """Of one GPU, from or to pinned memory in one direction, while most GPUs of the node copy.

    Source: derived; of the largest copies measured, whose start is the smallest part.
    """
    pinned = [p for p in _copies(way, points) if not (p.pageable or p.both_ways)]
    return _of_the_largest(pinned)


def drive_bytes_per_second(way: Direction, points: Sequence[Point]) -> float | None:
    """Of the drive that was measured, past the file system's cache, with most requests in flight.

    Where it was measured while it does both, each way has that speed: most of what moves are
    states, which are read and written back at the same time.
    Source: derived; as `host_copy_bytes_per_second`. Two drives behind a virtual machine took as
    long for both ways at once as for one after the other (1.7 and 2.9 GB/s alone, 1.0 together).
    """
    direct = [p for p in points if isinstance(p, CopyPoint) and not p.cached]
    both = [p for p in direct if p.both_ways and p.direction in DRIVE_WAYS]
    return _of_the_largest(both or [p for p in direct if p.direction == way])


def host_memory_bytes(hosts: Sequence[Host]) -> float | None:
    """Memory of the smallest host; null where one does not say."""
    return _least([host.memory_bytes for host in hosts])


def drive_free_bytes(hosts: Sequence[Host]) -> float | None:
    """Room on the drive that was measured, of the host with least; null where one has none.

    Source: derived; states can be written to space that is free alone, and every node keeps its own
    share of them, so the host with least room decides.
    """
    return _least([host.drive_free_bytes for host in hosts])


def _copies(way: Direction, points: Sequence[Point]) -> list[CopyPoint]:
    return [p for p in points if isinstance(p, CopyPoint) and p.direction == way]


def _of_the_largest(copies: Sequence[CopyPoint]) -> float | None:
    """Bytes per second of the most concurrent copies, of these of the largest; the slowest."""
    if not copies:
        return None
    most = max((p.concurrent, p.num_bytes) for p in copies)
    return min(p.num_bytes / p.time.seconds for p in copies if (p.concurrent, p.num_bytes) == most)


def _least(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(min(known)) if known and len(known) == len(values) else None

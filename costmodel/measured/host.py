"""What a profile says of host memory, processors and drives of a node.

Speeds are as measured, sizes as the cluster states them: the profile's stand where it states none.
"""

from collections.abc import Iterator, Sequence
from typing import TypedDict

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GB, TERA
from trainplan.costmodel.hardware import ClusterSpec, DriveSpec, HostSpec, NodeGroup
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.machine import Drives, Machine, Provenance
from trainplan.costmodel.measured.stragglers import speed_spread
from trainplan.costmodel.profiles import (
    HOST_COPIES,
    CopyPoint,
    Host,
    OptimizerPoint,
    Point,
    Profile,
)

DRIVE_WAYS: tuple[str, ...] = ("nvme_read", "nvme_write")
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


def measured_host(machine: Machine, profile: Profile, cluster: ClusterSpec) -> MeasuredHost:
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
        "stragglers": speed_spread(profile.points) is not None,
        "drive": drives is not None and _drive_speeds(profile) is not None,
    }
    stated = [p for p in machine.provenance if p.quantity != f"{profile.gpu} host"]
    only = HostSpec(drives=measured_drives(profile))
    mine = all(group.host == only for group in cluster.groups if group.gpu == profile.gpu)
    return {
        "host_bytes_per_second": min(copies, default=machine.host_bytes_per_second),
        "cpu_adam_params_per_second": adam or machine.cpu_adam_params_per_second,
        "host_memory_bytes": memory,
        "drives": drives,
        "provenance": (*(stated if mine else machine.provenance), *_sources(profile, taken)),
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
            "drive not measured: as the cluster states; `plan profile --only drive --scratch "
            "DIRECTORY` has it"
        )
    return tuple(found)


def _sources(profile: Profile, taken: dict[str, bool]) -> Iterator[Provenance]:
    source = profile.origins[0].source
    for quantity, measured in taken.items():
        if measured:
            yield Provenance(f"{profile.gpu} {quantity}", "measured", source)


def _drive_speeds(profile: Profile) -> tuple[float, float] | None:
    """Bytes per second read and written; null where a way is not known, or other nodes share it."""
    read, write = (drive_bytes_per_second(way, profile.points) for way in DRIVE_WAYS)
    shared = any(host.drive_file_system in NOT_OF_A_NODE for host in profile.hosts)
    return None if read is None or write is None or shared else (read, write)


def measured_drives(profile: Profile) -> DriveSpec | None:
    """The drive of each node that was measured; null where its speed or its room is not known."""
    speeds, space = _drive_speeds(profile), drive_free_bytes(profile.hosts)
    if speeds is None or not space:
        return None
    read, write = speeds
    return DriveSpec(tb=space / TERA, read_gb_per_s=read / GB, write_gb_per_s=write / GB)


def with_measured_drives(cluster: ClusterSpec, profile: Profile) -> ClusterSpec:
    """The cluster with the drive of the profile where it does not say how fast its own are.

    What may lie on drives is asked of clusters.
    """
    drives = measured_drives(profile)
    if drives is None:
        return cluster
    groups = (
        _with_drives(group, drives) if group.gpu == profile.gpu else group
        for group in cluster.groups
    )
    return cluster.model_copy(update={"groups": tuple(groups)})


def _with_drives(group: NodeGroup, drives: DriveSpec) -> NodeGroup:
    host = catalog.host_of(group)
    known = host.drives if host else None
    if known and known.read_gb_per_s:
        return group
    if known:
        each = {
            name: getattr(drives, name) / known.count
            for name in ("read_gb_per_s", "write_gb_per_s")
        }
        drives = known.model_copy(update=each)
    changed = (group.host or HostSpec()).model_copy(update={"drives": drives})
    return group.model_copy(update={"host": changed})


def _drives(known: Drives | None, profile: Profile) -> Drives | None:
    """Drives of the cluster, else of the measured room, with the speeds that were measured."""
    speeds, space = _drive_speeds(profile), drive_free_bytes(profile.hosts)
    if speeds is None or (known is None and not space):
        return known
    room, life = (known.space_bytes, known.written_bytes) if known else (space or 0.0, None)
    return Drives(room, *speeds, life, drive_both_bytes_per_second(profile.points))


def cpu_adam_params_per_second(processes: int, points: Sequence[Point]) -> float | None:
    """Parameters per second of all processes of a measured node, each on its share of the cores.

    Source: derived; all update at the same time, so the node does what they do together; smaller
    sizes may lie in caches.
    """
    mine = [
        p
        for p in points
        if isinstance(p, OptimizerPoint)
        and (p.place, p.name) == ("cpu", "adamw")
        and p.processes in (None, processes)
    ]
    if not mine:
        return None
    largest = max(mine, key=lambda p: p.num_params)
    return processes * largest.num_params / largest.time.seconds


def host_copy_bytes_per_second(way: str, points: Sequence[Point]) -> float | None:
    """Of one GPU, from or to pinned memory in one direction, while most GPUs of the node copy.

    Source: derived; of the largest copies measured, whose start is the smallest part.
    """
    pinned = [p for p in _copies(way, points) if not (p.pageable or p.both_ways)]
    return _of_the_largest(pinned)


def drive_bytes_per_second(way: str, points: Sequence[Point]) -> float | None:
    """Of the drive that was measured, past the file system's cache, with most requests in flight.

    Source: derived; as `host_copy_bytes_per_second`.
    """
    return _of_the_largest([p for p in _copies(way, points) if not (p.cached or p.both_ways)])


def drive_both_bytes_per_second(points: Sequence[Point]) -> float | None:
    """Of the drive each way, while it reads and writes as much at the same time.

    Source: derived; as `host_copy_bytes_per_second`. Two drives behind virtual machines took as
    long for both ways at once as for one after the other (tests/replay/host_h200.json).
    """
    both = [p for way in DRIVE_WAYS for p in _copies(way, points) if p.both_ways]
    return _of_the_largest([p for p in both if not p.cached])


def host_memory_bytes(hosts: Sequence[Host]) -> float | None:
    """Memory of the smallest host; null where one does not say."""
    return _least([host.memory_bytes for host in hosts])


def drive_free_bytes(hosts: Sequence[Host]) -> float | None:
    """Room on the drive that was measured, of the host with least; null where one has none.

    Source: derived; states can be written to space that is free alone, and every node keeps its own
    share of them, so the host with least room decides.
    """
    return _least([host.drive_free_bytes for host in hosts])


def _copies(way: str, points: Sequence[Point]) -> list[CopyPoint]:
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


def processes_per_core(profile: Profile | None) -> float:
    """Processes that share a core of a machine without GPUs; 1 where each has its own."""
    if profile is None or profile.device is None or profile.device.vendor != "cpu":
        return 1.0
    cores = [host.num_cores for host in profile.hosts if host.num_cores]
    return max(1.0, profile.gpus_per_node / min(cores)) if cores else 1.0

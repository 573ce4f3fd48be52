"""What a profile says of host memory, processors and drives of a node."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from trainplan.costmodel.spec.evidence.profile import (
    CopyPoint,
    Direction,
    Host,
    OptimizerPoint,
    Point,
)


def cpu_adam_params_per_second(processes: int, points: Sequence[Point]) -> float | None:
    """Parameters per second of all processes of a measured node, each on its share of the cores.

    Source: derived; all update at the same time, so the node does what they do together.
    """
    rates = [
        p.num_params / p.time.seconds
        for p in points
        if isinstance(p, OptimizerPoint) and p.place == "cpu" and p.processes in (None, processes)
    ]
    return processes * median(rates) if rates else None


def host_copy_bytes_per_second(way: Direction, points: Sequence[Point]) -> float | None:
    """Of one GPU, from or to pinned memory in one direction, while most GPUs of the node copy.

    Source: derived; of the largest copies measured, whose start is the smallest part.
    """
    pinned = [p for p in _copies(way, points) if not (p.pageable or p.both_ways)]
    return _of_the_largest(pinned)


def drive_bytes_per_second(way: Direction, points: Sequence[Point]) -> float | None:
    """Of the drive that was measured, past the file system's cache, with most requests in flight.

    Source: derived; as `host_copy_bytes_per_second`.
    """
    return _of_the_largest([p for p in _copies(way, points) if not p.cached])


def host_memory_bytes(hosts: Sequence[Host]) -> float | None:
    """Memory of the smallest host; null where one does not say."""
    return _least([host.memory_bytes for host in hosts])


def drive_free_bytes(hosts: Sequence[Host]) -> float | None:
    """Room on the drive that was measured, of the host with least; null where one has none.

    Source: derived; what is taken already holds no states of a training.
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

"""Reading and writing a file on the drive that is asked for."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from trainplan.costmodel.spec.evidence.profile import CopyPoint, Point
from trainplan.profiler.bench.inputs.tensors import task
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request

Way = Literal["nvme_write", "nvme_read"]
WAYS: tuple[Way, ...] = ("nvme_write", "nvme_read")
FILE_BYTES, FILE_BYTES_QUICK = 2**28, 2**26
BLOCK_BYTES = 2**23
"""One request: long enough that its latency is small beside its transfer. Source: derived, 8 MiB at
5 GB/s take 1.6 ms, a request of a drive 0.1 ms."""


def drive_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Both ways, where a folder is given."""
    size = FILE_BYTES_QUICK if request.quick else FILE_BYTES
    for way in WAYS if request.scratch else ():
        measure = partial(_measure, way, size, request.scratch or ".")
        yield task(place, f"{way} bytes={size}", measure)


@dataclass(frozen=True, slots=True)
class DriveFile:
    """An open file of a fixed size, and an aligned block of random bytes."""

    descriptor: int
    direct: bool
    """Past the page cache."""
    num_bytes: int
    block: mmap.mmap

    def write(self) -> None:
        """The whole file, until it is on the drive."""
        for offset in range(0, self.num_bytes, BLOCK_BYTES):
            _all(os.pwrite(self.descriptor, self.block, offset))
        os.fsync(self.descriptor)

    def read(self) -> None:
        """The whole file, from the drive and not from the page cache."""
        if not self.direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.descriptor, 0, self.num_bytes, os.POSIX_FADV_DONTNEED)
        for offset in range(0, self.num_bytes, BLOCK_BYTES):
            _all(os.preadv(self.descriptor, [self.block], offset))


def _all(count: int) -> None:
    if count != BLOCK_BYTES:
        raise OSError(f"the drive took {count} of {BLOCK_BYTES} bytes: is it full?")


@contextmanager
def drive_file(folder: str, num_bytes: int) -> Iterator[DriveFile]:
    """A new file in the folder, removed afterwards; `O_DIRECT` where the file system has it."""
    descriptor, path = tempfile.mkstemp(prefix="trainplan-", dir=folder)
    try:
        direct = _reopened(path)
        with mmap.mmap(-1, BLOCK_BYTES) as block:  # begins at a page, as O_DIRECT wants it
            block.write(os.urandom(BLOCK_BYTES))
            used = descriptor if direct is None else direct
            yield DriveFile(used, direct is not None, num_bytes, block)
        if direct is not None:
            os.close(direct)
    finally:
        os.close(descriptor)
        Path(path).unlink()


def _reopened(path: str) -> int | None:
    """The file opened past the page cache; null where that is refused (`tmpfs`, macOS)."""
    flag = getattr(os, "O_DIRECT", 0)
    try:
        return os.open(path, os.O_RDWR | flag) if flag else None
    except OSError:
        return None


def _measure(way: Way, size: int, folder: str, clock: Clock) -> Iterator[Point]:
    with drive_file(folder, size) as file:
        file.write()
        time = clock.time(file.read if way == "nvme_read" else file.write)
    yield CopyPoint(direction=way, num_bytes=size, time=time)


DRIVE = Item("drive", "reading and writing the drive of --scratch", drive_tasks)

"""Reading and writing a file on the drive that is asked for, past the cache and through it."""

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from trainplan.costmodel.base import GIB
from trainplan.costmodel.profiles import CopyPoint, Point
from trainplan.profiler.bench.inputs.tensors import task
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.host import IN_MEMORY, file_system
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request

Way = Literal["nvme_write", "nvme_read"]
WAYS: tuple[Way, ...] = ("nvme_write", "nvme_read")
FILE_BYTES, FILE_BYTES_QUICK = 2**29, 2**27
BLOCK_BYTES = 2**23
"""One request: long enough that its latency is small beside its transfer. Source: derived, 8 MiB at
5 GB/s take 1.6 ms, a request of a drive 0.1 ms."""
REQUESTS = 8
"""In flight at once, each by a thread of its own.

Source: derived. A drive is busy where rate times latency is in flight: 14 GB/s, the most of four
lanes of PCIe 5.0, times 0.1 ms are 1.4 MB; eight blocks hold several drives busy, joined to one.
"""


@dataclass(frozen=True, slots=True)
class Access:
    """One way to use a drive."""

    way: Way
    cached: bool
    requests: int
    both_ways: bool = False
    """While as much is written to another file."""

    @property
    def key(self) -> str:
        """Its name in the journal."""
        suffix = " both_ways" * self.both_ways
        return (
            f"{self.way} {'cached' if self.cached else 'direct'} requests={self.requests}{suffix}"
        )


def drive_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Each way past the file system's cache and through it, where a folder is given.

    Both ways at once too, as an update of what lies there needs them; unless quick, also one
    request at a time.
    """
    if request.scratch is None:
        return
    size = FILE_BYTES_QUICK if request.quick else FILE_BYTES
    cases = [Access(way, cached, REQUESTS) for cached in (False, True) for way in WAYS]
    cases.append(Access("nvme_read", cached=False, requests=REQUESTS, both_ways=True))
    if not request.quick:
        cases += [Access(way, cached=False, requests=1) for way in WAYS]
    for case in cases:
        measure = partial(_measure, case, size, request.scratch)
        yield task(place, f"{case.key} bytes={size}", measure, together=False)


@dataclass(frozen=True, slots=True)
class DriveFile:
    """An open file of a fixed size, and an aligned block of random bytes for every request."""

    descriptor: int
    direct: bool
    """Past the file system's cache."""
    num_bytes: int
    blocks: tuple[mmap.mmap, ...]
    pool: ThreadPoolExecutor

    def write(self) -> None:
        """The whole file; where it is direct, until it is on the drive."""
        self._each(lambda block, offset: os.pwrite(self.descriptor, block, offset))
        if self.direct:
            os.fsync(self.descriptor)

    def read(self) -> None:
        """The whole file."""
        self._each(lambda block, offset: os.preadv(self.descriptor, [block], offset))

    def _each(self, call: Callable[[mmap.mmap, int], int]) -> None:
        """Every block of the file once, as many at a time as there are blocks in memory."""

        def share(number: int) -> None:
            step = len(self.blocks) * BLOCK_BYTES
            for offset in range(number * BLOCK_BYTES, self.num_bytes, step):
                _all(call(self.blocks[number], offset))

        list(self.pool.map(share, range(len(self.blocks))))


def _all(count: int) -> None:
    if count != BLOCK_BYTES:
        raise OSError(f"the drive took {count} of {BLOCK_BYTES} bytes: is it full?")


@contextmanager
def drive_file(
    folder: str, num_bytes: int, requests: int = 1, *, direct: bool = False
) -> Iterator[DriveFile]:
    """A new file in the folder, written once and removed afterwards.

    Raises:
        ProfilerError: As `scratch_file`.
    """
    with ExitStack() as stack:
        descriptor = stack.enter_context(scratch_file(folder, num_bytes, direct=direct))
        blocks = tuple(stack.enter_context(_block()) for _ in range(requests))
        pool = stack.enter_context(ThreadPoolExecutor(requests))
        file = DriveFile(descriptor, direct, num_bytes, blocks, pool)
        file.write()
        yield file


@contextmanager
def scratch_file(folder: str, num_bytes: int, *, direct: bool) -> Iterator[int]:
    """Descriptor of a new file in the folder, with room for that many bytes.

    The file has no name: it is gone with the process, whatever ends it.

    Raises:
        ProfilerError: There is no room for it, or it is asked for past a cache that the file system
            does not let anybody past.
    """
    _must_have_room(folder, num_bytes)
    with ExitStack() as stack:
        descriptor, path = tempfile.mkstemp(prefix="trainplan-", dir=folder)
        stack.callback(os.close, descriptor)
        try:
            if direct:
                descriptor = past_cache(path)
                stack.callback(os.close, descriptor)
        finally:
            Path(path).unlink(missing_ok=True)
        yield descriptor


@contextmanager
def _block() -> Iterator[mmap.mmap]:
    """It begins at a page, as `O_DIRECT` wants it."""
    with mmap.mmap(-1, BLOCK_BYTES) as block:
        block.write(os.urandom(BLOCK_BYTES))
        yield block


def _must_have_room(folder: str, num_bytes: int) -> None:
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < 2 * num_bytes:
        raise ProfilerError(
            f"{folder} has {free / GIB:.1f} GiB free, and a file of {num_bytes / GIB:.1f} GiB must "
            "leave as much again: make room or choose another --scratch"
        )


def past_cache(path: str) -> int:
    """The file opened past the file system's cache.

    Raises:
        ProfilerError: The file system has nothing but its cache, or refuses.
    """
    kind = file_system(path)
    flag = getattr(os, "O_DIRECT", 0)
    if flag and kind not in IN_MEMORY:
        with suppress(OSError):
            return os.open(path, os.O_RDWR | flag)
    raise ProfilerError(
        f"unsupported: the file system of --scratch ({kind or 'of unknown type'}) does not read or "
        "write past its cache (O_DIRECT), so the drive itself cannot be measured there"
    )


def past_cache_is_open(folder: str) -> bool:
    """Do files in the folder open past the file system's cache?"""
    with suppress(ProfilerError), scratch_file(folder, 0, direct=True):
        return True
    return False


def _measure(case: Access, size: int, folder: str, clock: Clock) -> Iterator[Point]:
    with ExitStack() as stack:
        opened = partial(drive_file, folder, size, case.requests, direct=not case.cached)
        file = stack.enter_context(opened())
        call = file.read if case.way == "nvme_read" else file.write
        if case.both_ways:
            other = stack.enter_context(opened())
            call = partial(at_once, stack.enter_context(ThreadPoolExecutor(1)), call, other.write)
        time = clock.time(call, on_host=True)
    yield CopyPoint(
        direction=case.way,
        num_bytes=size,
        concurrent=case.requests,
        both_ways=case.both_ways,
        cached=case.cached,
        time=time,
    )


def at_once(
    thread: ThreadPoolExecutor, one: Callable[[], object], other: Callable[[], object]
) -> None:
    """Two calls beside each other, until both have ended."""
    ended = thread.submit(other)
    one()
    ended.result()


DRIVE = Item("drive", "reading and writing the drive of --scratch", drive_tasks, 6.0)

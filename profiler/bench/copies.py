"""Copies between a GPU and host memory, and in host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Literal

from trainplan.costmodel.profiles import CopyPoint, Point
from trainplan.profiler.bench.inputs.tensors import device_of, task
from trainplan.profiler.bench.inputs.threads import own_threads, running
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

Way = Literal["host_to_device", "device_to_host"]
WAYS: tuple[Way, ...] = ("host_to_device", "device_to_host")
SIZES = (2**28, 2**24)
"""Bytes: the rate, and the latency."""
HOST_BYTES = {"cuda": 2**29, "cpu": 2**26}
"""Of a copy in host memory, far beyond caches."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One sort of copy between GPUs and host."""

    way: Way
    num_bytes: int
    gpus: int
    pageable: bool = False
    both_ways: bool = False

    @property
    def key(self) -> str:
        """Its name in the journal."""
        suffix = " pageable" * self.pageable + " both_ways" * self.both_ways
        return f"{self.way} bytes={self.num_bytes} gpus={self.gpus}{suffix}"


def copy_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Each way and size alone, then by all GPUs of every node at once: they share switches.

    From pinned memory, as copies beside compute need it; of the large size also from memory that
    is not, and both ways at once. On a CPU there is nothing to copy to but memory itself.
    """
    yield task(place, "host_to_host", partial(_measure_host, place), together=True)
    if place.device == "cpu":
        return
    counts = dict.fromkeys((1, place.local_world_size))
    sizes = SIZES[: 1 if request.quick else None]
    copies = [Copy(way, size, n) for n, way, size in product(counts, WAYS, sizes)]
    copies += [Copy(way, SIZES[0], n, pageable=True) for n, way in product(counts, WAYS)]
    copies += [Copy(WAYS[0], SIZES[0], n, both_ways=True) for n in counts]
    for copy in copies:
        yield task(place, copy.key, partial(_measure, copy, place), together=copy.gpus > 1)


def _measure(copy: Copy, place: Place, clock: Clock) -> Iterator[Point]:
    call = _call(copy.way, copy, place)
    if copy.both_ways:
        call = _together(call, _call(WAYS[1 - WAYS.index(copy.way)], copy, place))
    # the driver copies pageable memory through a buffer of its own, and waits for it
    time = (clock.time_together if copy.gpus > 1 else clock.time)(call, on_host=copy.pageable)
    yield CopyPoint(
        direction=copy.way,
        num_bytes=copy.num_bytes,
        concurrent=copy.gpus,
        pageable=copy.pageable,
        both_ways=copy.both_ways,
        time=time,
    )


def _call(way: Way, copy: Copy, place: Place) -> Callable[[], object]:
    on_host = _random(copy.num_bytes)
    if not copy.pageable:
        on_host = on_host.pin_memory()
    on_device = torch.empty(copy.num_bytes, dtype=torch.uint8, device=device_of(place))
    source, target = (on_host, on_device) if way == "host_to_device" else (on_device, on_host)
    return partial(target.copy_, source, non_blocking=True)


def _together(one: Callable[[], object], other: Callable[[], object]) -> Callable[[], object]:
    """Two calls at the same time, each on a stream of its own; neither before what was queued."""
    streams = torch.cuda.Stream(), torch.cuda.Stream()

    def call() -> None:
        here = torch.cuda.current_stream()
        for stream in streams:
            stream.wait_stream(here)
        for stream, each in zip(streams, (one, other), strict=True):
            with torch.cuda.stream(stream):
                each()
        for stream in streams:
            here.wait_stream(stream)

    return call


def _measure_host(place: Place, clock: Clock) -> Iterator[Point]:
    """All processes at once, each on its share of the cores: they share the memory's bandwidth."""
    size = HOST_BYTES[place.device]
    source = _random(size)
    target = torch.empty_like(source)
    with running(own_threads(place)):
        time = clock.time_together(partial(target.copy_, source), on_host=True)
    yield CopyPoint(
        direction="host_to_host",
        num_bytes=size,
        concurrent=place.local_world_size,
        pageable=True,
        time=time,
    )


def _random(num_bytes: int) -> Tensor:
    return torch.randint(256, (num_bytes,), dtype=torch.uint8)


COPIES = Item("copies", "copies between GPUs and host memory, and in host memory", copy_tasks)

"""Copies between a GPU and host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Literal

from trainplan.costmodel.spec.evidence.profile import CopyPoint, Point
from trainplan.profiler.bench.inputs.tensors import device_of, task
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

Way = Literal["host_to_device", "device_to_host"]
WAYS: tuple[Way, ...] = ("host_to_device", "device_to_host")
SIZES = (2**28, 2**24)
"""Bytes: the rate, and the latency."""


def copy_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Each way and size alone, then by all GPUs of every node at once: they share switches.

    On a CPU there is nothing to copy to.
    """
    if place.device == "cpu":
        return
    counts = dict.fromkeys((1, place.local_world_size))
    for count, way, size in product(counts, WAYS, SIZES[: 1 if request.quick else None]):
        measure = partial(_measure, way, size, count, place)
        yield task(place, f"{way} bytes={size} gpus={count}", measure, together=count > 1)


def _measure(way: Way, size: int, count: int, place: Place, clock: Clock) -> Iterator[Point]:
    """Pinned memory, as copies that run beside compute need it."""
    device = device_of(place)
    on_host = torch.randint(256, (size,), dtype=torch.uint8).pin_memory()
    on_device = torch.empty(size, dtype=torch.uint8, device=device)
    source, target = (on_host, on_device) if way == "host_to_device" else (on_device, on_host)
    call: Callable[[], object] = partial(target.copy_, source, non_blocking=True)
    time = clock.time_together(call) if count > 1 else clock.time(call)
    yield CopyPoint(direction=way, num_bytes=size, concurrent=count, time=time)


COPIES = Item("copies", "copies between GPUs and host memory", copy_tasks)

"""A step of Adam, on the device and in host memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Literal

from trainplan.costmodel.spec.evidence.profile import OptimizerPoint, Point
from trainplan.profiler.bench.inputs.tensors import check_finite, device_of, task
from trainplan.profiler.host.cores import usable_cores
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

SIZES = {"cuda": (2**26, 2**28), "cpu": (2**22, 2**24)}
"""Parameters: their fp32 weight, gradient and two moments are 16 bytes each, far beyond caches."""
HOST_SIZES = {"cuda": (2**24, 2**26), "cpu": (2**22, 2**24)}


def device_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each size; the first only if quick."""
    for size in SIZES[place.device][: 1 if request.quick else None]:
        yield task(place, f"params={size}", partial(_measure, size, "gpu", place))


def host_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """As above in host memory, on all nodes' processes at once: they share its bandwidth."""
    for size in HOST_SIZES[place.device][: 1 if request.quick else None]:
        measure = partial(_measure, size, "cpu", place)
        yield task(place, f"params={size}", measure, together=True)


def _measure(
    size: int, where: Literal["gpu", "cpu"], place: Place, clock: Clock
) -> Iterator[Point]:
    device = device_of(place) if where == "gpu" else "cpu"
    generator = torch.Generator(device=device).manual_seed(0)
    weight = torch.randn(size, generator=generator, device=device).requires_grad_()
    weight.grad = torch.randn(size, generator=generator, device=device)
    adam = torch.optim.AdamW([weight], lr=1e-4, fused=True)

    def step() -> None:
        adam.step()

    threads = own_threads(place) if where == "cpu" else 1
    with running(threads) if where == "cpu" else nullcontext():
        time = clock.time_together(step) if where == "cpu" else clock.time(step)
    check_finite(weight, f"Adam over {size} parameters")
    yield OptimizerPoint(num_params=size, place=where, threads=threads, time=time)


def own_threads(place: Place) -> int:
    """This process's share of the cores it may use: launchers often leave it a single thread."""
    return max(1, usable_cores() // place.local_world_size)


@contextmanager
def running(threads: int) -> Iterator[None]:
    """Torch's own threads, this many, while it lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


OPTIMIZER = Item("optimizer", "a step of Adam on the device", device_tasks)
CPU_ADAM = Item("cpu_adam", "a step of Adam in host memory", host_tasks)

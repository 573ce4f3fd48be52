"""A step of Adam, on the device and in host memory.

Both are torch's fused AdamW: one kernel that reads and writes weight, gradient and both moments
once, in fp32. In host memory that is what Megatron-LM's `--optimizer-cpu-offload` runs
(`megatron/core/optimizer/__init__.py` at 0044db1f: `torch.optim.AdamW` with `fused=True`) and what
FSDP2 runs where its parameters are offloaded; DeepSpeed brings a kernel of its own, `CPUAdam`, that
passes over the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from trainplan.costmodel.spec.evidence.profile import OptimizerPoint, Point
from trainplan.profiler.bench.inputs.tensors import check_finite, device_of, task
from trainplan.profiler.bench.inputs.threads import own_threads, running
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

SIZES = {"cuda": (2**26, 2**28), "cpu": (2**22, 2**24)}
"""Parameters: their fp32 weight, gradient and two moments are 16 bytes each, far beyond caches."""
HOST_SIZES = {"cuda": (2**26, 2**27), "cpu": (2**22, 2**24)}
"""As SIZES: processors of servers have caches of up to 0.3 GiB, where 2^24 parameters, all their 16
bytes together, run twice as fast as 2^26. Source: measured on 16 cores of an Intel Xeon beside an
H200: 9.1e9 parameters a second against 4.6e9.
"""


def device_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each size; the first only if quick."""
    for size in SIZES[place.device][: 1 if request.quick else None]:
        yield task(place, f"params={size}", partial(_on_device, size, place))


def host_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """As above in host memory: all processes of every node at once, which share its bandwidth.

    Then one process alone with all cores of its node, where there are several.
    """
    alone = (1,) if place.local_world_size > 1 else ()
    for processes in (place.local_world_size, *alone):
        said = " processes=1" if processes < place.local_world_size else ""
        for size in HOST_SIZES[place.device][: 1 if request.quick else None]:
            measure = partial(_on_host, size, processes, place)
            yield task(place, f"params={size}{said}", measure, together=not said)


def _on_device(size: int, place: Place, clock: Clock) -> Iterator[Point]:
    weight, step = _adam(size, device_of(place))
    time = clock.time(step)
    check_finite(weight, f"Adam over {size} parameters")
    yield OptimizerPoint(num_params=size, place="gpu", time=time)


def _on_host(size: int, processes: int, place: Place, clock: Clock) -> Iterator[Point]:
    weight, step = _adam(size, "cpu")
    threads = own_threads(place, processes)
    with running(threads):
        together = processes == place.local_world_size
        time = clock.time_together(step) if together else clock.time(step)
    check_finite(weight, f"Adam over {size} parameters")
    yield OptimizerPoint(
        num_params=size, place="cpu", threads=threads, processes=processes, time=time
    )


def _adam(size: int, device: str) -> tuple[Tensor, Callable[[], object]]:
    """The weight, and a call that updates it."""
    generator = torch.Generator(device=device).manual_seed(0)
    weight = torch.randn(size, generator=generator, device=device).requires_grad_()
    weight.grad = torch.randn(size, generator=generator, device=device)
    adam = torch.optim.AdamW([weight], lr=1e-4, fused=True)

    def step() -> None:
        adam.step()

    return weight, step


OPTIMIZER = Item("optimizer", "a step of Adam on the device", device_tasks)
CPU_ADAM = Item("cpu_adam", "a step of Adam in host memory (torch's fused kernel)", host_tasks, 2.0)

"""A step of Adam, on the device and in host memory, and of other optimizers that are asked for.

Adam's are torch's fused AdamW: one kernel that reads and writes weight, gradient and both moments
once, in fp32. In host memory that is what Megatron-LM's `--optimizer-cpu-offload` runs
(`megatron/core/optimizer/__init__.py` at 0044db1f: `torch.optim.AdamW` with `fused=True`) and what
FSDP2 runs where its parameters are offloaded; DeepSpeed brings a kernel of its own, `CPUAdam`, that
passes over the same bytes. Others update square matrices in fp32, as the package they come in does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from trainplan.costmodel.optimizers import ADAMW
from trainplan.costmodel.profiles import OptimizerPoint, Point
from trainplan.profiler.bench.inputs.tensors import check_finite, device_of, task, tensors
from trainplan.profiler.bench.inputs.threads import own_threads, running
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor


class Class(NamedTuple):
    """What makes an optimizer of a list of weights."""

    module: str
    name: str
    settings: Mapping[str, object] = MappingProxyType({})


OTHERS: Mapping[str, Class] = MappingProxyType(
    {
        "adamw8bit": Class("bitsandbytes.optim", "AdamW8bit"),
        "adafactor": Class("torch.optim", "Adafactor"),
        "lion": Class("bitsandbytes.optim", "Lion"),
        "sgd": Class("torch.optim", "SGD", {"momentum": 0.9, "fused": True}),
        "muon": Class("torch.optim", "Muon"),
    }
)
"""By the name of the cost model; torch has Adafactor from 2.5 and Muon from 2.9 on."""
SIDE = {"cuda": 2**12, "cpu": 2**10}
"""Of their matrices: about the width of a model of 8e9 parameters, or a tiny one."""
SIZES = {"cuda": (2**26, 2**28), "cpu": (2**22, 2**24)}
"""Parameters: their fp32 weight, gradient and two moments are 16 bytes each, far beyond caches."""
HOST_SIZES = {"cuda": (2**26, 2**27), "cpu": (2**22, 2**24)}
"""As SIZES: processors of servers have caches of up to 0.3 GiB, where 2^24 parameters, all their 16
bytes together, run twice as fast as 2^26. Source: measured on 16 cores of an Intel Xeon beside an
H200: 9.1e9 parameters a second against 4.6e9.
"""


def device_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each size, the first only if quick; one for each other optimizer."""
    sizes = SIZES[place.device]
    for size in sizes[: 1 if request.quick else None]:
        yield task(place, f"params={size}", partial(_on_device, size, place))
    for name in dict.fromkeys(request.optimizers):
        if name != ADAMW.name:
            yield task(place, f"params={sizes[0]} {name}", partial(_other, name, sizes[0], place))


def host_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """As above in host memory: all processes of every node at once, which share its bandwidth.

    Then one process alone with all cores of its node, where there are several.
    """
    alone = (1,) if place.local_world_size > 1 else ()
    for processes in (place.local_world_size, *alone):
        where = " processes=1" if processes < place.local_world_size else ""
        for size in HOST_SIZES[place.device][: 1 if request.quick else None]:
            measure = partial(_on_host, size, processes, place)
            yield task(place, f"params={size}{where}", measure, together=not where)


def _on_device(size: int, place: Place, clock: Clock) -> Iterator[Point]:
    weight, step = _adam(size, device_of(place))
    time = clock.time(step)
    check_finite(weight, f"Adam over {size} parameters")
    yield OptimizerPoint(num_params=size, place="gpu", time=time)


def _other(name: str, size: int, place: Place, clock: Clock) -> Iterator[Point]:
    make, side = tensors(place, "fp32"), SIDE[place.device]
    weights = [make.normal(side, side).requires_grad_() for _ in range(size // side**2)]
    for weight in weights:
        weight.grad = make.normal(side, side)
    optimizer = _class(name)(weights, lr=1e-4, **OTHERS[name].settings)
    time = clock.time(optimizer.step)
    for weight in weights:
        check_finite(weight, f"{name} over {size} parameters")
    yield OptimizerPoint(name=name, num_params=size, side=side, place="gpu", time=time)


def _class(name: str) -> Callable[..., torch.optim.Optimizer]:
    """The class of an optimizer.

    Raises:
        ProfilerError: None is measured by that name, or its package is not there or older.
    """
    if name not in OTHERS:
        known = ", ".join((ADAMW.name, *OTHERS))
        raise ProfilerError(f"no optimizer {name!r} can be measured: choose of {known}")
    module, kind, _ = OTHERS[name]
    try:
        found: Callable[..., torch.optim.Optimizer] = getattr(import_module(module), kind)
    except (ImportError, AttributeError) as error:
        package = module.partition(".")[0]
        raise ProfilerError(
            f"there is no {module}.{kind} here: install {package}, or a newer one"
        ) from error
    return found


def _on_host(size: int, processes: int, place: Place, clock: Clock) -> Iterator[Point]:
    weight, step = _adam(size, "cpu")
    threads = own_threads(place, processes)
    with running(threads):
        together = processes == place.local_world_size
        time = (clock.time_together if together else clock.time)(step, on_host=True)
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


OPTIMIZER = Item("optimizer", "a step of Adam, or others, on the device", device_tasks)
CPU_ADAM = Item("cpu_adam", "a step of Adam in host memory (torch's fused kernel)", host_tasks, 2.0)

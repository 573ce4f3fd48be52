"""Power of one GPU, idle and under load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from statistics import fmean

from trainplan.costmodel.spec.evidence.profile import Point, PowerPoint
from trainplan.profiler.bench.attention import core_of, kernels
from trainplan.profiler.bench.inputs.tensors import device_of, task, tensors
from trainplan.profiler.bench.layer import EAGER_KERNELS
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

SETTLE_SECONDS, WINDOW_SECONDS = 0.5, 1.5
"""Source: NVML reports the mean of the last second on Ampere and later, of 0.1 s before
(nvmlDeviceGetPowerUsage); half a second is what a short run can pay."""
SAMPLES = 15
SIZE = 8192
"""Of a square product: 1.1 TFLOP, no GPU ends it before its power has risen."""
Load = Callable[[Place], Callable[[], object]]
"""Makes the buffers of a load and the call that repeats."""
LIBRARIES = ("pynvml", "amdsmi")
"""What `torch.cuda.power_draw` asks, by vendor."""


def power_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Idle, products, copies and attention; nothing without the vendor's library."""
    if place.device == "cpu" or not any(find_spec(name) for name in LIBRARIES):
        return
    yield task(place, "idle", partial(_idle, place))
    loads: tuple[tuple[str, Load], ...] = (
        ("product", _product),
        ("copy", _copy),
        ("attention", partial(_attention, request)),
    )
    for state, load in loads[: 1 if request.quick else None]:
        yield task(place, state, partial(_loaded, state, load, place))


def _idle(place: Place, clock: Clock) -> Iterator[Point]:
    """With a context: its clocks are up, nothing runs."""
    torch.cuda.synchronize(device_of(place))
    time.sleep(SETTLE_SECONDS)
    watts = []
    for _ in range(SAMPLES):
        watts.append(_watts(place))
        time.sleep(WINDOW_SECONDS / SAMPLES)
    yield PowerPoint(state="idle", watts=fmean(watts))


def _loaded(state: str, load: Load, place: Place, clock: Clock) -> Iterator[Point]:
    """Watts while a call repeats without end, and joules of one."""
    call, device = load(place), device_of(place)
    seconds = clock.time(call).seconds
    burst = max(1, int(WINDOW_SECONDS / SAMPLES / seconds))
    watts: list[float] = []
    begun = time.monotonic()
    while len(watts) < SAMPLES:
        for _ in range(burst):
            call()
        if time.monotonic() - begun > SETTLE_SECONDS:
            watts.append(_watts(place))  # asked while the burst runs
        torch.cuda.synchronize(device)
    mean = fmean(watts)
    yield PowerPoint(state=state, watts=mean, joules_per_call=mean * seconds)


def _watts(place: Place) -> float:
    """Source: `torch.cuda.power_draw`, milliwatts by NVML or AMD SMI."""
    return float(torch.cuda.power_draw(device_of(place))) / 1000


def _product(place: Place) -> Callable[[], object]:
    make = tensors(place, "bf16")
    left, right = make.normal(SIZE, SIZE), make.normal(SIZE, SIZE)
    return lambda: torch.mm(left, right)


def _copy(place: Place) -> Callable[[], object]:
    make = tensors(place, "bf16")
    source, target = make.normal(4 * SIZE, SIZE), make.normal(4 * SIZE, SIZE)
    return lambda: target.copy_(source)


def _attention(request: Request, place: Place) -> Callable[[], object]:
    make, core = tensors(place, "bf16"), core_of(request.model, 1, 1, SIZE)

    def heads(count: int, dim: int) -> torch.Tensor:
        return make.normal(1, SIZE, count, dim).transpose(1, 2)

    query = heads(core.num_heads, core.head_dim)
    key = heads(core.num_key_value_heads, core.head_dim)
    value = heads(core.num_key_value_heads, core.value_dim)
    grouped = core.num_heads != core.num_key_value_heads

    def call() -> torch.Tensor:
        with kernels(*EAGER_KERNELS):
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=grouped
            )

    return call


POWER = Item("power", "power idle and under load, energy of a product", power_tasks, 3.0)

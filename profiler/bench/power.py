"""Power, clock and heat of GPUs: idle, under load, and all of a node under load at once.

Never run on a GPU so far.
"""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import fmean

from trainplan.costmodel.profiles import Point, PowerPoint
from trainplan.profiler.bench.attention import DEFAULT, core_of, kernels
from trainplan.profiler.bench.inputs.shapes import caps
from trainplan.profiler.bench.inputs.tensors import device_of, task, tensors, working_precision
from trainplan.profiler.bench.layer import EAGER_KERNELS
from trainplan.profiler.bench.layers.case import expert_ranks, measured_model
from trainplan.profiler.bench.layers.decoder import Layer, rotation
from trainplan.profiler.bench.layers.modules import Sharding
from trainplan.profiler.host import Meter, Reading, gpu_meter
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import dist, torch

SETTLE_SECONDS, WINDOW_SECONDS = 0.5, 1.5
"""Source: NVML reports the mean of the last second on Ampere and later, of 0.1 s before
(nvmlDeviceGetPowerUsage); half a second is what a short run can pay. Counters of energy are brought
up to date every 20 to 100 ms (PETSc manual, PetscLogGpuEnergyMeter), 7 % of the window at most."""
TOGETHER_SECONDS = 5.0
"""Of all GPUs at once. Source: assumed; heat of neighbours takes minutes to rise in full, the
power limit of a node acts within a second."""
SAMPLES = 15
SIZE = 8192
"""Of a square product: 1.1 TFLOP, no GPU ends it before its power has risen."""
Load = Callable[[Place], Callable[[], object]]
"""Makes the buffers of a load and the call that repeats."""
LIBRARIES = ("pynvml", "amdsmi")
"""What the driver is asked with, by vendor."""


def power_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Idle, products, copies, attention and a layer; nothing without the vendor's library."""
    if place.device == "cpu" or not any(find_spec(name) for name in LIBRARIES):
        return
    yield task(place, "idle", partial(_idle, place), together=False)
    loads: tuple[tuple[str, Load], ...] = (
        ("product", _product),
        ("copy", _copy),
        ("attention", partial(_attention, request)),
        ("layer", partial(_layer, request)),
    )
    for state, load in loads[: 1 if request.quick else None]:
        yield task(place, state, partial(_loaded, state, load, place), together=False)
    if place.local_world_size > 1:
        window = WINDOW_SECONDS if request.quick else TOGETHER_SECONDS
        measure = partial(_together, "product", _product, window, place)
        yield task(place, f"product gpus={place.local_world_size}", measure, together=True)


def _idle(place: Place, clock: Clock) -> Iterator[Point]:
    """With a context: its clocks are up, nothing runs."""
    read = _must_read(place)
    torch.cuda.synchronize(device_of(place))
    time.sleep(SETTLE_SECONDS)
    readings = []
    for _ in range(SAMPLES):
        readings.append(read())
        time.sleep(WINDOW_SECONDS / SAMPLES)
    yield _point("idle", place, readings)


def _loaded(state: str, load: Load, place: Place, clock: Clock) -> Iterator[Point]:
    """What a GPU draws while a call repeats without end, and joules of one."""
    yield _measured(state, load(place), place, clock, WINDOW_SECONDS)


def _together(state: str, load: Load, window: float, place: Place, clock: Clock) -> Iterator[Point]:
    """The same on all GPUs at once, a point of each: they share power, air and water."""
    call, known = load(place), gpu_meter(place) is not None
    texts: list[str] = [""] * place.world_size
    dist.all_gather_object(texts, "")  # all begin now
    mine = _measured(state, call, place, clock, window) if known else None
    dist.all_gather_object(texts, mine.model_dump_json() if mine else "")
    points = (PowerPoint.model_validate_json(text) for text in texts if text)
    yield from (p.model_copy(update={"gpus": place.local_world_size}) for p in points)


@dataclass(frozen=True, slots=True)
class Burst:
    """How long a load ran, and how often."""

    seconds: float
    calls: int
    joules: float | None
    """By the counter; null where there is none, or it stands still."""


def _measured(
    state: str, call: Callable[[], object], place: Place, clock: Clock, window: float
) -> PowerPoint:
    read, wait = _must_read(place), partial(torch.cuda.synchronize, device_of(place))
    count = max(1, int(window / SAMPLES / clock.time(call).seconds))
    run = partial(_burst, call, count, read, wait)
    begun = time.monotonic()
    while time.monotonic() - begun < SETTLE_SECONDS:
        run()
    first, begun = read(), time.monotonic()
    readings = [run() for _ in range(SAMPLES)]
    seconds, last = time.monotonic() - begun, read()
    joules = (last.joules or 0.0) - (first.joules or 0.0)
    burst = Burst(seconds, count * SAMPLES, joules if first.joules and joules > 0 else None)
    return _point(state, place, readings, burst)


def _burst(
    call: Callable[[], object], count: int, read: Meter, wait: Callable[[], object]
) -> Reading:
    """Some calls, and what the driver says while they run."""
    for _ in range(count):
        call()
    reading = read()
    wait()
    return reading


def _point(
    state: str, place: Place, readings: Sequence[Reading], burst: Burst | None = None
) -> PowerPoint:
    """Means of the readings; energy by the counter, else by power.

    Source: derived; power is energy over time, so a mean power times seconds is energy.
    """
    watts = fmean(reading.watts or 0.0 for reading in readings)
    clocks = [reading.sm_mhz for reading in readings if reading.sm_mhz is not None]
    joules = None
    if burst:
        joules = watts * burst.seconds if burst.joules is None else burst.joules
        watts = joules / burst.seconds
    return PowerPoint(
        state=state,
        gpu=f"{socket.gethostname()}:{place.local_rank}",
        watts=watts,
        joules_per_call=joules / burst.calls if burst and joules is not None else None,
        seconds_per_call=burst.seconds / burst.calls if burst else None,
        sm_mhz=fmean(clocks) if clocks else None,
        celsius=readings[-1].celsius,
        slowed_by=tuple(sorted({reason for one in readings for reason in one.slowed_by})),
    )


def _must_read(place: Place) -> Meter:
    read = gpu_meter(place)
    if read is None:
        raise NotImplementedError("the driver does not report what this GPU draws")
    return read


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


def _layer(request: Request, place: Place) -> Callable[[], object]:
    """Forward and backward of a layer of plain PyTorch, cut as far as was asked for."""
    model, make = measured_model(request.model), tensors(place, working_precision(request, place))
    moe = model.moe_layers[-1]
    experts = expert_ranks(model, caps(place.device, quick=False).tensor_bytes) if moe else 1
    layer = Layer(make, model, Sharding(max(request.tensor_parallel), experts), moe=moe)
    table = rotation(make, model, request.seq_length)
    shape = min(request.micro_batch_sizes), request.seq_length, model.hidden_size
    x, gradient = make.normal(*shape).requires_grad_(), make.normal(*shape)

    def call() -> object:
        with kernels(*(EAGER_KERNELS if place.device == "cuda" else (DEFAULT,))):
            result = layer(x, table)
        return torch.autograd.grad(result, [x, *layer.parameters], gradient)

    return call


POWER = Item(
    "power",
    "power idle and under load, of one GPU and of all of a node; energy of a product and a layer",
    power_tasks,
    3.0,
)

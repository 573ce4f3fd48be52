"""What all measurements share: random tensors, buffers beyond the cache, number formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from math import sqrt
from typing import TYPE_CHECKING

from trainplan.costmodel.job import FULL_WIDTH, Precision
from trainplan.costmodel.profiles import Point, Timing
from trainplan.profiler.task import Clock, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

SEED = 0
CACHE_TIMES = 3
"""Buffers together are this many times the last cache, so that none is found there again.

Source: a buffer of one cache stays in it as a whole, and of two caches those lines that replacement
happens to keep; a third leaves next to none.
"""
UNKNOWN_CACHE_BYTES = 2**26
"""Source: NVIDIA H100 and H200 have 50 MiB of L2, B200 126 MiB in two parts."""
HIP_CACHE_BYTES = 2**28
"""Source: AMD Instinct MI300X data sheet, 256 MB of Infinity Cache, which is no L2."""
MOST_COPIES = 64
SMALLEST_SECONDS = 1e-9


def device_of(place: Place) -> str:
    """Name of this process's device in torch: ROCm presents its own as `cuda`."""
    return f"cuda:{place.local_rank}" if place.device == "cuda" else "cpu"


def dtype_of(precision: Precision) -> torch.dtype:
    """What tensors are stored in; formats below 16 bits are made by casting from bf16."""
    if precision in FULL_WIDTH:
        return torch.float32
    return torch.float16 if precision == "fp16" else torch.bfloat16


def working_precision(request: Request, place: Place) -> Precision:
    """Format of whole layers, attention and ends: bf16 on a GPU, on a CPU what was asked for."""
    if place.device == "cpu" and request.precision in FULL_WIDTH:
        return "fp32"
    return "bf16"


@dataclass(frozen=True, slots=True)
class Tensors:
    """Makes tensors of random normal numbers, the same in every run."""

    device: str
    dtype: torch.dtype
    generator: torch.Generator

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Standard normal numbers times `scale`: zeros would draw less power and run faster."""
        made = torch.randn(shape, generator=self.generator, device=self.device, dtype=self.dtype)
        return made.mul_(scale) if scale != 1.0 else made

    def weight(self, *shape: int) -> Tensor:
        """A parameter whose product keeps the size of what it multiplies."""
        return self.normal(*shape, scale=1 / sqrt(shape[-1])).requires_grad_()

    def integers(self, below: int, *shape: int) -> Tensor:
        """Uniform integers from 0."""
        return torch.randint(below, shape, generator=self.generator, device=self.device)


def tensors(place: Place, precision: Precision) -> Tensors:
    """A maker of tensors on this process's device."""
    device = device_of(place)
    generator = torch.Generator(device=device).manual_seed(SEED)
    return Tensors(device, dtype_of(precision), generator)


def rotated(
    place: Place, num_bytes: int, make: Callable[[], Callable[[], object]]
) -> Callable[[], object]:
    """A call whose buffers of `num_bytes` are not in the cache of a GPU.

    `make` gives the call on buffers of its own; every call takes the next buffers.
    """
    calls = cycle([make() for _ in range(_copies(place, num_bytes))])

    def call() -> object:
        return next(calls)()

    return call


def _copies(place: Place, num_bytes: int) -> int:
    if place.device == "cpu":
        return 1
    properties = torch.cuda.get_device_properties(device_of(place))
    cache = getattr(properties, "L2_cache_size", 0) or UNKNOWN_CACHE_BYTES
    if torch.version.hip:
        cache = max(cache, HIP_CACHE_BYTES)
    return min(MOST_COPIES, CACHE_TIMES * cache // num_bytes + 1)


def check_finite(result: Tensor, what: str) -> None:
    """Is every number a number?

    Raises:
        ValueError: Some is not; the message names what was measured.
    """
    if not bool(torch.isfinite(result).all()):
        raise ValueError(f"{what}: the result has NaN or Inf; the kernel or the device is broken")


@contextmanager
def multiplied_in(precision: Precision) -> Iterator[None]:
    """Products of fp32 tensors in tf32 or in fp32, whatever the process had set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def difference(whole: Timing, part: Timing) -> Timing:
    """What is left of one time without another; their scatters add.

    Source: errors that are independent add in squares, in seconds; over the seconds that are left
    they are fractions again.
    """
    seconds = max(whole.seconds - part.seconds, SMALLEST_SECONDS)

    def joined(one: float, other: float) -> float:
        return sqrt((one * whole.seconds) ** 2 + (other * part.seconds) ** 2) / seconds

    return Timing(
        seconds=seconds,
        spread_fraction=joined(whole.spread_fraction, part.spread_fraction),
        half_width_fraction=joined(whole.half_width_fraction, part.half_width_fraction),
        repeats=min(whole.repeats, part.repeats),
        flags=tuple(dict.fromkeys((*whole.flags, *part.flags))),
    )


@dataclass(frozen=True, slots=True)
class AtOnce:
    """A clock of calls that every rank makes by itself, all at the same time."""

    clock: Clock

    def time(self, call: Callable[[], object], *, on_host: bool = False) -> Timing:
        """Seconds of a call while all ranks make it, on the slowest."""
        return self.clock.time_together(call, on_host=on_host)

    def time_together(self, call: Callable[[], object], *, on_host: bool = False) -> Timing:
        """As `time`."""
        return self.clock.time_together(call, on_host=on_host)

    def laps(
        self, call: Callable[[Callable[[], None]], object], *, together: bool = True
    ) -> Sequence[Sequence[float]]:
        """As `Clock.laps` while all ranks make the call, on the slowest."""
        return self.clock.laps(call, together=True)

    def timing_of(self, seconds: Sequence[float]) -> Timing:
        """As `Clock.timing_of`."""
        return self.clock.timing_of(seconds)


def task(
    place: Place,
    key: str,
    measure: Callable[[Clock], Iterable[Point]],
    *,
    together: bool | None = None,
) -> MeasurementTask:
    """A task that gives its memory back, also where it fails.

    `together` says whether all ranks take part. Where it is left out, a GPU is measured alone, and
    processes of one CPU at once: in a step they share its memory, its caches and its clock.
    """
    shared = together is None and place.device == "cpu" and place.local_world_size > 1

    def measured(clock: Clock) -> Iterable[Point]:
        try:
            return tuple(measure(AtOnce(clock) if shared else clock))
        finally:
            if place.device == "cuda":
                torch.cuda.empty_cache()

    return MeasurementTask(key, measured, bool(together) or shared)

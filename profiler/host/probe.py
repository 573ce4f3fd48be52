"""One product of fixed size, timed again and again: does the machine still run as it did?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import hypot
from statistics import median

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from trainplan.costmodel.profiles import Flag, Timing
from trainplan.costmodel.spec import Spec
from trainplan.profiler.host.machine import busy_cores, usable_cores
from trainplan.profiler.host.nvml import driver
from trainplan.profiler.task import Clock, Place
from trainplan.profiler.torch_on_use import torch

PRODUCT_SIZE = {"cuda": 8192, "cpu": 512}
"""Edge of the matrices: 1.1 TFLOP, some milliseconds of a GPU; 0.3 GFLOP on the CPU."""
NOISE = "noisy neighbour or throttling:"
"""How notes of it begin."""
LISTEN_SECONDS = 0.5
"""Source: derived. Linux counts a hundred ticks a second: fifty tell a tenth of a core."""
TOLERANCE_FRACTION = {"cuda": 0.03, "cpu": 0.10}
"""A slower or faster product is remarked upon, where it is known well enough to tell."""


class State(Spec):
    """How a rank runs compared with the usual of this run."""

    rank: NonNegativeInt
    host: str
    ratio: PositiveFloat
    """Seconds of the product over the median of all times before."""
    half_width_fraction: NonNegativeFloat = 0.0
    """How far the ratio may be off by the scatter of the product itself."""
    slowed_by: tuple[str, ...] = ()

    def is_odd(self, tolerance: float) -> bool:
        """Does it run differently, beyond what the product scatters by?"""
        return abs(self.ratio - 1) > tolerance + self.half_width_fraction


@dataclass(frozen=True, slots=True)
class Change:
    """The machine is not as usual."""

    flag: Flag
    note: str
    ranks: frozenset[int]
    """Where: what other ranks measured alone is none the worse."""


@dataclass(slots=True)
class SpeedProbe:
    """The fixed product on this rank, and how long it took so far."""

    place: Place
    host: str
    clock: Clock
    product: Callable[[], object]
    times: list[Timing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.times.append(self.clock.time(self.product))

    @property
    def first_seconds(self) -> float:
        """At the start."""
        return self.times[0].seconds

    def state(self) -> State:
        """How this rank runs now; a product that differs is timed once more, as chance would.

        The usual is the median of all times, so a start in a bad moment does not make all that
        follows look odd.
        """
        usual = median(time.seconds for time in self.times)
        scatter = median(time.half_width_fraction for time in self.times)
        found = self._state(usual, scatter)
        if found.is_odd(TOLERANCE_FRACTION[self.place.device]):
            found = min(found, self._state(usual, scatter), key=lambda one: abs(one.ratio - 1))
        return found

    def _state(self, usual: float, scatter: float) -> State:
        """The product now.

        Source: errors that are independent add in squares, so the ratio of two times is off by the
        root of the sum of the squares of what each is off by.
        """
        now = self.clock.time(self.product)
        self.times.append(now)
        return State(
            rank=self.place.rank,
            host=self.host,
            ratio=now.seconds / usual,
            half_width_fraction=hypot(now.half_width_fraction, scatter),
            slowed_by=_slowed_by(self.place),
        )


def changes(states: Sequence[State], item: str, place: Place) -> Iterator[Change]:
    """What differs from the usual after tasks of an item, of all ranks in a sentence or two."""
    tolerance = TOLERANCE_FRACTION[place.device]
    odd = [state for state in states if state.is_odd(tolerance)]
    if odd:
        most = max(odd, key=lambda state: abs(state.ratio - 1))
        yield Change(
            "drift",
            f"{NOISE} after item {item} a fixed matrix product took "
            f"{most.ratio:.2f} times as long as usual on rank {most.rank} of {most.host}, "
            f"and differed by more than {tolerance:.0%} on {len(odd)} of {len(states)} ranks",
            frozenset(state.rank for state in odd),
        )
    for state in states:
        for reason in state.slowed_by:
            where = f"the GPU of rank {state.rank} on {state.host}"
            yield Change(
                "throttled", f"{where} was slowed down by {reason}", frozenset({state.rank})
            )


def speed_probe(place: Place, host: str, clock: Clock) -> SpeedProbe:
    """The probe of this rank, timed for the first time."""
    size = PRODUCT_SIZE[place.device]
    dtype = torch.bfloat16 if place.device == "cuda" else torch.float32
    left, right = (torch.randn(size, size, device=place.device, dtype=dtype) for _ in range(2))
    return SpeedProbe(place, host, clock, lambda: left @ right)


def cpu_contention(used: float | None, cores: int, place: Place, host: str) -> str:
    """A sentence where others leave a host less than is measured; else nothing.

    Measurements on the CPU use all of its cores, those of a GPU one for each rank.
    """
    wanted = (
        cores * (1 - TOLERANCE_FRACTION["cpu"])
        if place.device == "cpu"
        else float(min(cores, place.local_world_size))
    )
    if used is None or cores - used >= wanted:
        return ""
    return (
        f"{NOISE} other programs used {used:.1f} of {cores} cores of {host} at the start: "
        "what is measured may be several times too slow, measure again when they are done"
    )


def contention_now(place: Place, host: str) -> str:
    """The same of this moment, for which this process listens."""
    return cpu_contention(busy_cores(LISTEN_SECONDS), usable_cores(), place, host)


def slow_ranks(first_seconds: tuple[float, ...], place: Place) -> Iterator[int]:
    """Ranks that are slower than the others from the start on."""
    usual = median(first_seconds)
    for rank, seconds in enumerate(first_seconds):
        if seconds > usual * (1 + TOLERANCE_FRACTION[place.device]):
            yield rank


def _slowed_by(place: Place) -> tuple[str, ...]:
    nvidia = driver() if place.device == "cuda" else None
    device = nvidia.device_of(place.local_rank) if nvidia else None
    return () if nvidia is None or device is None else nvidia.slowed_by(device)

"""Times calls on this rank's device: events on a GPU, the performance counter on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Protocol, cast

from trainplan.profiler.journal.samples import Book
from trainplan.profiler.journal.timing import Effort, Repeat, repeat_until_known
from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import dist, torch

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from trainplan.costmodel.spec.evidence.profile import Timing

ALONE_FRACTION = 0.01
TOGETHER_FRACTION = 0.03
"""Goals for half the confidence interval: messages scatter more than kernels."""
CAP_SECONDS = 0.6
QUICK_CAP_SECONDS = 0.15
MOST_REPEATS = 25
QUICK_MOST_REPEATS = 11
BLOCK_SECONDS = {"cuda": 10e-3, "cpu": 1e-3}
"""Calls timed as one last at least so long.

Source: derived. 2000 times what CUDA events resolve (0.5 us), 10000 times what the performance
counter does (0.1 us), and some times the launch of the first kernel of a block.
"""
MOST_CALLS = 1000
POLL_SECONDS = 50e-6
Mark = Callable[[], None]
"""Says that a part of a call ends here."""


class Event(Protocol):
    """A mark in the work of a GPU."""

    def record(self) -> None:
        """Set the mark behind what was asked of the GPU so far."""

    def query(self) -> bool:
        """Has the GPU come this far?"""
        ...

    def elapsed_time(self, end: Event, /) -> float:
        """Milliseconds to a later mark."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """The clock of one rank.

    Calls are warmed up once, then counted so that a block of them lasts long enough; blocks are
    repeated until the median of a call is known.
    """

    place: Place
    quick: bool
    control: ProcessGroup | None = None
    """Group of all ranks on the CPU, to agree in; none where there is one rank."""
    give_up_seconds: float = 30.0
    """How long to wait for a GPU: another rank may have left this one alone in a collective."""
    now: Callable[[], float] = perf_counter
    book: Book = field(default_factory=Book)
    """Where all samples are written down."""

    def time(self, call: Callable[[], object]) -> Timing:
        """Seconds of a call on this rank's device."""
        calls = self._calls_per_block(self._warm_up(call))
        begin = self.now()

        def repeat() -> Repeat:
            seconds = self._block(call, calls)
            return Repeat(seconds, self.now() - begin)

        repeats = repeat_until_known(repeat, self._effort(ALONE_FRACTION))
        return self.book.timing_of([r.seconds for r in repeats])

    def time_together(self, call: Callable[[], object]) -> Timing:
        """Seconds of a call that all ranks make at once: of every repeat the slowest rank's."""
        calls = self._calls_per_block(self._slowest(self._warm_up(call), 0.0).seconds)
        begin = self.now()

        def repeat() -> Repeat:
            self._barrier()
            seconds = self._block(call, calls)
            return self._slowest(seconds, self.now() - begin)

        repeats = repeat_until_known(repeat, self._effort(TOGETHER_FRACTION))
        ranks = [r.slowest_rank for r in repeats if r.slowest_rank is not None]
        return self.book.timing_of([r.seconds for r in repeats], ranks)

    def laps(
        self, call: Callable[[Mark], object], *, together: bool = False
    ) -> Sequence[Sequence[float]]:
        """Seconds of the parts of a call that marks where they end; of several ranks the slowest's.

        Nothing waits for the device between parts, so launches run ahead of it as in training.
        """
        for _ in range(2):  # the first one compiles, allocates and connects
            self._laps(call)
        found: list[Sequence[float]] = []
        begin = self.now()

        def repeat() -> Repeat:
            if together:
                self._barrier()
            laps = (*self._laps(call), self.now() - begin)
            *parts, elapsed = self._slowest_of(laps) if together else laps
            found.append(parts)
            return Repeat(sum(parts), elapsed)

        repeat_until_known(repeat, self._effort(TOGETHER_FRACTION if together else ALONE_FRACTION))
        return found

    def timing_of(self, seconds: Sequence[float]) -> Timing:
        """As `time`, of calls that a task timed by itself."""
        return self.book.timing_of(seconds)

    def _effort(self, half_width_fraction: float) -> Effort:
        if self.quick:
            return Effort(half_width_fraction, QUICK_CAP_SECONDS, QUICK_MOST_REPEATS)
        return Effort(half_width_fraction, CAP_SECONDS, MOST_REPEATS)

    def _warm_up(self, call: Callable[[], object]) -> float:
        """Seconds of the second call: the first one compiles, allocates and connects."""
        self._block(call, 1)
        return self._block(call, 1)

    def _calls_per_block(self, seconds: float) -> int:
        block = BLOCK_SECONDS[self.place.device]
        return max(1, min(MOST_CALLS, ceil(block / max(seconds, block / MOST_CALLS))))

    def _block(self, call: Callable[[], object], calls: int) -> float:
        """Seconds of one of `calls` calls in a row."""
        if self.place.device == "cuda":
            return self._device_block(call, calls)
        begin = self.now()
        for _ in range(calls):
            call()
        return (self.now() - begin) / calls

    def _device_block(self, call: Callable[[], object], calls: int) -> float:
        event = cast("Callable[..., Event]", torch.cuda.Event)
        begin, end = event(enable_timing=True), event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        self._await(end)
        return begin.elapsed_time(end) / 1000 / calls

    def _await(self, end: Event) -> None:
        """Wait until the GPU has come to a mark."""
        given_up = self.now() + self.give_up_seconds
        while not end.query():
            if self.now() > given_up:
                raise TimeoutError(f"timed out: the GPU was not done in {self.give_up_seconds} s")
            sleep(POLL_SECONDS)

    def _laps(self, call: Callable[[Mark], object]) -> tuple[float, ...]:
        """Seconds between the marks of one call."""
        if self.place.device == "cpu":
            times = [self.now()]
            call(lambda: times.append(self.now()))
            return tuple(after - before for before, after in pairwise(times))
        event = cast("Callable[..., Event]", torch.cuda.Event)
        marks = [event(enable_timing=True)]
        torch.cuda.synchronize()
        marks[0].record()

        def mark() -> None:
            marks.append(event(enable_timing=True))
            marks[-1].record()

        call(mark)
        self._await(marks[-1])
        return tuple(before.elapsed_time(after) / 1000 for before, after in pairwise(marks))

    def _barrier(self) -> None:
        if self.control is not None:
            dist.barrier(group=self.control)

    def _slowest(self, seconds: float, elapsed_seconds: float) -> Repeat:
        """The same on every rank: the longest of all times, the largest of all clocks."""
        if self.control is None:
            return Repeat(seconds, elapsed_seconds, self.place.rank)
        mine = torch.tensor([[seconds, elapsed_seconds]], dtype=torch.float64)
        every = torch.empty(self.place.world_size, 2, dtype=torch.float64)
        dist.all_gather_into_tensor(every, mine, group=self.control)
        slowest = int(every[:, 0].argmax())
        return Repeat(float(every[slowest, 0]), float(every[:, 1].max()), slowest)

    def _slowest_of(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """Of each number the largest of all ranks."""
        if self.control is None:
            return tuple(numbers)
        most = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=self.control)
        return tuple(most.tolist())

"""Times calls on this rank's device: events on a GPU, the performance counter on the CPU.

On a GPU the calls of a block are queued behind a delay, and between two events behind that: what is
timed is the device, never the start of the queue. What Python takes to queue a call is told apart.
The first event not yet reached when all calls are queued is the proof; without it the block is
repeated, shorter or behind a longer delay, and where that does not help the timing is flagged.
Where all ranks make the call, one more call between delay and first event lets them begin together:
every rank queues it whatever the others do, so no delay waits for another rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from trainplan.profiler.host.delay import Block, Delay, Event, event
from trainplan.profiler.journal import Book, Effort, Repeat, repeat_until_known
from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import dist, torch

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from trainplan.costmodel.profiles import Timing

ALONE_FRACTION = 0.01
TOGETHER_FRACTION = 0.03
"""Goals for half the confidence interval: messages scatter more than kernels."""
CAP_SECONDS = 0.6
QUICK_CAP_SECONDS = 0.15
MOST_REPEATS = 25
QUICK_MOST_REPEATS = 11
BLOCK_SECONDS = {"cuda": 10e-3, "cpu": 1e-3}
"""Calls timed as one last about so long, as far as MOST_CALLS lets them.

Source: derived. 2000 times what CUDA events resolve (0.5 us), 10000 times what the performance
counter does (0.1 us).
"""
MOST_CALLS = {"cuda": 200, "cpu": 1000}
"""Source: derived; a stream holds some 1,000 kernels, collectives and their events take a handful;
200 kernels of 2 us are 800 times what events resolve."""
POLL_SECONDS = 50e-6
Mark = Callable[[], None]
"""Says that a part of a call ends here."""


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
    delay: Delay = field(default_factory=Delay)
    going_on: Callable[[], object] = bool
    """Called after calls that were timed, so that who watches sees a long task go on."""
    book: Book = field(default_factory=Book)
    """Where all samples are written down."""

    def time(self, call: Callable[[], object], *, on_host: bool = False) -> Timing:
        """Seconds of a call on this rank's device."""
        repeats = self._repeats(call, ALONE_FRACTION, on_host=on_host, together=False)
        return self._written(repeats, (), on_host=on_host)

    def time_together(self, call: Callable[[], object], *, on_host: bool = False) -> Timing:
        """Seconds of a call that all ranks make at once: of every repeat the slowest rank's."""
        repeats = self._repeats(call, TOGETHER_FRACTION, on_host=on_host, together=True)
        ranks = [r.slowest_rank for r in repeats if r.slowest_rank is not None]
        return self._written(repeats, ranks, on_host=on_host)

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

    def _repeats(
        self, call: Callable[[], object], goal: float, *, on_host: bool, together: bool
    ) -> list[Repeat]:
        """Blocks until a call is known; the first ones compile, allocate and connect.

        The very first waits for the others in the call alone: where one of them cannot make it, the
        group of control is free for it to say so.
        """
        self._take(call, Block(1), 0.0, together=False)
        second = self._take(call, Block(1), 0.0, together=together)
        block = whole = Block(self._calls_per_block(second.seconds))
        if self.place.device == "cuda" and not on_host:
            block = whole.held_back(second.host_seconds)
        begin = self.now()

        def repeat() -> Repeat:
            nonlocal block
            taken = self._take(call, block, begin, together=together)
            while block.delay_seconds and not taken.held_back:
                block = block.again(taken.host_seconds) or whole
                taken = self._take(call, block, begin, together=together)
            return taken

        return repeat_until_known(repeat, self._effort(goal))

    def _written(self, repeats: Sequence[Repeat], ranks: Sequence[int], *, on_host: bool) -> Timing:
        held_back = all(repeat.held_back for repeat in repeats)
        return self.book.timing_of(
            [repeat.seconds for repeat in repeats],
            ranks,
            [repeat.host_seconds for repeat in repeats] if held_back else (),
            with_host=self.place.device == "cuda" and not on_host and not held_back,
        )

    def _calls_per_block(self, seconds: float) -> int:
        block, most = BLOCK_SECONDS[self.place.device], MOST_CALLS[self.place.device]
        return max(1, min(most, ceil(block / max(seconds, block / most))))

    def _take(
        self, call: Callable[[], object], block: Block, begin: float, *, together: bool
    ) -> Repeat:
        """One of the calls in a row of a block, as all ranks agree upon it."""
        if together:
            self._barrier()
        if self.place.device == "cuda":
            taken = self._device_block(call, block, lead=together or block.calls > 1)
        else:
            taken = self._host_block(call, block)
        taken = replace(taken, elapsed_seconds=self.now() - begin)
        self.going_on()
        return self._slowest(taken) if together else taken

    def _host_block(self, call: Callable[[], object], block: Block) -> Repeat:
        begin = self.now()
        for _ in range(block.calls):
            call()
        return Repeat((self.now() - begin) / block.calls, 0.0)

    def _device_block(self, call: Callable[[], object], block: Block, *, lead: bool) -> Repeat:
        begin, end = event(), event()
        torch.cuda.synchronize()
        learn = self.delay.ask(block.delay_seconds)
        if block.delay_seconds and lead:
            call()
        begin.record()
        launched = self.now()
        for _ in range(block.calls):
            call()
        launched = self.now() - launched
        held_back = not begin.query()
        end.record()
        self._await(end)
        learn()
        seconds = begin.elapsed_time(end) / 1000 / block.calls
        return Repeat(seconds, 0.0, None, launched / block.calls, held_back)

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
            self.going_on()
            return tuple(after - before for before, after in pairwise(times))
        marks = [event()]
        torch.cuda.synchronize()
        marks[0].record()

        def mark() -> None:
            marks.append(event())
            marks[-1].record()

        call(mark)
        self._await(marks[-1])
        self.going_on()
        return tuple(before.elapsed_time(after) / 1000 for before, after in pairwise(marks))

    def _barrier(self) -> None:
        if self.control is not None:
            dist.barrier(group=self.control)

    def _slowest(self, mine: Repeat) -> Repeat:
        """The same on every rank: the longest of all times, held back where all ranks were."""
        if self.control is None:
            return replace(mine, slowest_rank=self.place.rank)
        times = (mine.seconds, mine.elapsed_seconds, mine.host_seconds, float(not mine.held_back))
        every = torch.empty(self.place.world_size, len(times), dtype=torch.float64)
        row = torch.tensor([times], dtype=torch.float64)
        dist.all_gather_into_tensor(every, row, group=self.control)
        seconds, elapsed, host, early = (float(most) for most in every.amax(dim=0))
        return Repeat(seconds, elapsed, int(every[:, 0].argmax()), host, not early)

    def _slowest_of(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """Of each number the largest of all ranks."""
        if self.control is None:
            return tuple(numbers)
        most = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=self.control)
        return tuple(most.tolist())

"""What was timed, call by call: the journal keeps it, and every timing follows from it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from trainplan.costmodel.profiles import Point, Timing
from trainplan.costmodel.spec import Spec
from trainplan.profiler.journal.timing import timing_of

DIGITS = 6
"""Significant ones that are kept.

Source: a block takes a millisecond or more, and a clock that resolves 0.1 us tells a ten-thousandth
of it: digits behind the sixth say nothing.
"""
MOST_SAMPLES = 256
"""Of more, as many are kept, evenly spaced in time.

Source: derived. The clock repeats 25 times at most; links time every call of a block. 256 numbers
are 3 KiB of the journal.
"""
Value = TypeVar("Value")


class Samples(Spec):
    """The calls behind one timing, in the order they were made."""

    point: NonNegativeInt = 0
    """Which of the task's points has the timing, from 0."""
    timing: str = ""
    """Its field there: `forward`; empty where it is only part of another number."""
    seconds: tuple[PositiveFloat, ...] = Field(min_length=1, max_length=MOST_SAMPLES)
    """Of one call; of a block of calls their mean; of several ranks the slowest's."""
    slowest_ranks: tuple[NonNegativeInt, ...] = ()
    """Of each sample, where all ranks made the call together."""
    host_seconds: tuple[NonNegativeFloat, ...] = ()
    """Of each sample, what Python took to queue a call; none where that is not known."""
    with_host: bool = False
    """A GPU may have waited for Python: the calls could not be held back until all were queued."""

    def time(self) -> Timing:
        """Median, uncertainty and what is wrong with the samples."""
        return timing_of(
            self.seconds, self.slowest_ranks, self.host_seconds, with_host=self.with_host
        )


@dataclass(slots=True)
class Book:
    """What a clock timed, in order."""

    taken: list[Samples] = field(default_factory=list)

    def timing_of(
        self,
        seconds: Sequence[float],
        slowest_ranks: Sequence[int] = (),
        host_seconds: Sequence[float] = (),
        *,
        with_host: bool = False,
    ) -> Timing:
        """The timing of samples, which are written down as they are used.

        Raises:
            ProfilerError: As `profiler.journal.timing.timing_of`.
        """
        used = tuple(_rounded(one) for one in thinned(seconds))
        hosts = tuple(_rounded(one) for one in thinned(host_seconds))
        ranks = tuple(thinned(slowest_ranks))
        timing = timing_of(used, ranks, hosts, with_host=with_host)
        self.taken.append(
            Samples(seconds=used, slowest_ranks=ranks, host_seconds=hosts, with_host=with_host)
        )
        return timing


def thinned(values: Sequence[Value]) -> Sequence[Value]:
    """All values, or MOST_SAMPLES of them evenly spaced."""
    count = len(values)
    if count <= MOST_SAMPLES:
        return values
    return [values[i * count // MOST_SAMPLES] for i in range(MOST_SAMPLES)]


def labelled(taken: Iterable[Samples], points: Sequence[Point]) -> Iterator[Samples]:
    """Samples with the timing of a point that follows from them, where there is one."""
    unclaimed = list(timings(points))
    for samples in taken:
        time = samples.time()
        mine = next((one for one in unclaimed if one.time == time), None)
        if mine is None:
            yield samples
            continue
        unclaimed.remove(mine)
        yield samples.model_copy(update={"point": mine.point, "timing": mine.field})


@dataclass(frozen=True, slots=True)
class TimingOf:
    """A timing and where it is."""

    point: int
    field: str
    time: Timing


def timings(points: Sequence[Point]) -> Iterator[TimingOf]:
    """All timings of some points."""
    for number, point in enumerate(points):
        for name, value in point:
            if isinstance(value, Timing):
                yield TimingOf(number, name, value)


def replayed(points: Sequence[Point], samples: Iterable[Samples]) -> tuple[Point, ...]:
    """The points with the timings that follow from their samples; others stay as they are."""
    found = list(points)
    for one in samples:
        if one.timing:
            changed = {one.timing: one.time()}
            found[one.point] = found[one.point].model_copy(update=changed)
    return tuple(found)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{DIGITS - 1}e}")

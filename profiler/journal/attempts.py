"""A task that was measured several times, at different times: which of its timings count."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trainplan.costmodel.profiles import Flag, Point, Timing
from trainplan.profiler.journal.samples import Samples, replayed, timings
from trainplan.profiler.journal.timing import FEWEST_REPEATS, NOISY_FRACTION, timing_of

DOUBTFUL: frozenset[Flag] = frozenset({"noisy", "drift", "throttled"})
"""Flags of timings that another time may know better; outliers leave a median as it is."""
MOST_ATTEMPTS = 3
"""So often a task is measured whose timings stay doubtful.

Source: derived. Where a third of all moments is disturbed, one of three is quiet but for 4 %.
"""


@dataclass(slots=True)
class Attempt:
    """What one time gave."""

    points: tuple[Point, ...]
    samples: tuple[Samples, ...]
    seconds: float
    """How long it took to measure."""
    flags: list[Flag] = field(default_factory=list)
    """Of what was seen afterwards, for all of its timings."""

    def flagged_points(self) -> tuple[Point, ...]:
        """Its points, with the timings that follow from the samples."""
        return tuple(_flagged(point, self.flags) for point in replayed(self.points, self.samples))


def noise_fraction(time: Timing) -> float:
    """How far a timing may be off: half the interval of its median, of a doubtful one more.

    Source: a flag stands for repeats or a machine that differ by NOISY_FRACTION or more, which the
    interval does not always show.
    """
    least = NOISY_FRACTION if DOUBTFUL & set(time.flags) else 0.0
    return max(least, time.half_width_fraction)


def noise_of(points: Sequence[Point]) -> float:
    """The largest noise of a doubtful timing; zero where none is."""
    doubtful = (one.time for one in timings(points) if DOUBTFUL & set(one.time.flags))
    return max(map(noise_fraction, doubtful), default=0.0)


def best_known(attempts: Sequence[Attempt]) -> tuple[Point, ...]:
    """The points of a task; of every timing what is known best.

    That is the timing of one time, or of the samples of all times together: without a flag before
    those with one, then that with the narrowest interval.
    """
    flagged_points = [attempt.flagged_points() for attempt in attempts]
    best = min(flagged_points, key=noise_of)
    alike = [
        (attempt, points)
        for attempt, points in zip(attempts, flagged_points, strict=True)
        if [point.kind for point in points] == [point.kind for point in best]
    ]
    found = list(best)
    for one in timings(best) if len(alike) > 1 else ():
        times = [getattr(points[one.point], one.field) for _, points in alike]
        times += _together([attempt for attempt, _ in alike], one.point, one.field)
        known = min((time for time in times if isinstance(time, Timing)), key=_standing)
        found[one.point] = found[one.point].model_copy(update={one.field: known})
    return tuple(found)


def _standing(time: Timing) -> tuple[bool, bool, float]:
    doubtful = bool(DOUBTFUL & set(time.flags))
    return doubtful, time.repeats < FEWEST_REPEATS, time.half_width_fraction


def _together(attempts: Sequence[Attempt], point: int, name: str) -> Iterator[Timing]:
    """The timing of all samples of some times; none where they left no samples."""
    mine = [
        (attempt, one)
        for attempt in attempts
        for one in attempt.samples
        if (one.point, one.timing) == (point, name)
    ]
    if len(mine) > 1:
        seconds = [one for _, samples in mine for one in samples.seconds]
        ranks = [rank for _, samples in mine for rank in samples.slowest_ranks]
        hosts = [one for _, samples in mine for one in samples.host_seconds]
        all_with_host = len(hosts) == len(seconds)  # else a time does not tell what Python took
        with_host = any(samples.with_host for _, samples in mine)
        flags = [flag for attempt, _ in mine for flag in attempt.flags]
        time = timing_of(seconds, ranks, hosts if all_with_host else (), with_host=with_host)
        yield _with(time, flags)


def _flagged(point: Point, flags: Iterable[Flag]) -> Point:
    """The point with flags on each of its timings."""
    changed = {name: _with(value, flags) for name, value in point if isinstance(value, Timing)}
    return point.model_copy(update=changed)


def _with(time: Timing, flags: Iterable[Flag]) -> Timing:
    return time.model_copy(update={"flags": tuple(dict.fromkeys((*time.flags, *flags)))})

"""Medians, their certainty, and when the clock stops repeating."""

from itertools import count

import pytest

from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.host.clock import DeviceClock
from trainplan.profiler.journal.timing import (
    Effort,
    Repeat,
    drift,
    half_width_fraction,
    repeat_until_known,
    timing_of,
)
from trainplan.profiler.task import Place

QUIET = [0.0201, 0.0200, 0.0202, 0.0199, 0.0200, 0.0201, 0.0200, 0.0199, 0.0201]
"""Milliseconds-scale product on an idle machine."""
BUSY = [0.020, 0.031, 0.020, 0.044, 0.021, 0.029, 0.020, 0.038, 0.022]
"""The same beside another program."""
ONE_CORE = Place(device="cpu", rank=0, world_size=1, local_rank=0, local_world_size=1)


class FakeTime:
    """A clock that goes on only when something is done."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def work(self, seconds):
        def call():
            self.seconds += seconds if isinstance(seconds, float) else next(seconds)

        return call


def test_the_median_of_quiet_samples_is_known_and_not_flagged():
    timing = timing_of(QUIET)
    assert timing.seconds == 0.0200
    assert timing.repeats == 9
    assert timing.half_width_fraction == pytest.approx(0.005)
    assert timing.flags == ()


def test_the_time_of_the_host_is_the_median_of_its_samples():
    assert timing_of(QUIET, host_seconds=[1e-6, 9e-6, 2e-6]).host_seconds == 2e-6


def test_a_timing_that_may_be_of_the_host_is_flagged():
    assert timing_of(QUIET, with_host=True).flags == ("with_host",)


def test_samples_beside_another_program_are_noisy():
    assert "noisy" in timing_of(BUSY).flags


def test_one_sample_far_off_is_an_outlier_and_leaves_the_median():
    timing = timing_of([*QUIET, 0.05])
    assert timing.seconds == pytest.approx(0.02005)
    assert timing.flags == ("outliers",)


def test_samples_that_grow_are_a_drift():
    samples = [0.020, 0.020, 0.020, 0.020, 0.022, 0.022, 0.022, 0.022]
    assert drift(samples) == pytest.approx(1.1)
    assert "drift" in timing_of(samples).flags


def test_the_slowest_rank_is_the_one_that_was_it_most_often():
    assert timing_of([1.0, 1.0, 1.0], [2, 0, 2]).slowest_rank == 2


@pytest.mark.parametrize(("samples", "first"), [(5, 0), (8, 0), (9, 1), (12, 2), (20, 5)])
def test_the_interval_is_that_of_the_tables_of_order_statistics(samples, first):
    values = [float(value) for value in range(1, samples + 1)]
    width = values[-1 - first] - values[first]
    middle = (samples + 1) / 2
    assert half_width_fraction(values) == pytest.approx(width / 2 / middle)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_cannot_be_is_refused(bad):
    with pytest.raises(ProfilerError, match="cannot be"):
        timing_of([0.1, bad])


def test_no_sample_is_refused():
    with pytest.raises(ProfilerError, match="no sample"):
        timing_of([])


def repeats_of(samples, **effort):
    limits = {"half_width_fraction": 0.01, "cap_seconds": 1.0, "most_repeats": 25, **effort}
    elapsed = 0.0

    def repeat():
        nonlocal elapsed
        seconds = next(samples)
        elapsed += seconds
        return Repeat(seconds, elapsed)

    return len(repeat_until_known(repeat, Effort(**limits)))


def test_equal_samples_are_repeated_five_times():
    assert repeats_of(iter([0.01] * 30)) == 5


def test_samples_that_scatter_are_repeated_until_the_cap_of_repeats():
    assert repeats_of(0.01 + 0.01 * (n % 2) for n in count()) == 25


def test_repeating_stops_when_the_time_is_up():
    assert repeats_of(0.1 + 0.1 * (n % 2) for n in count()) == 7


def test_a_call_far_beyond_the_cap_is_not_repeated():
    assert repeats_of(iter([30.0, 30.0])) == 1


def test_samples_of_zero_end_and_are_refused_later():
    assert repeats_of(iter([0.0] * 30), most_repeats=6) == 6


def test_the_clock_gives_the_time_of_one_call_of_a_block():
    fake = FakeTime()
    timing = DeviceClock(ONE_CORE, quick=True, now=fake.now).time(fake.work(20e-6))
    assert timing.seconds == pytest.approx(20e-6)
    assert timing.repeats == 5


def test_the_clock_warms_up_before_it_measures():
    fake = FakeTime()
    slow_first = iter([5.0, *[0.004] * 100])
    timing = DeviceClock(ONE_CORE, quick=False, now=fake.now).time(fake.work(slow_first))
    assert timing.seconds == pytest.approx(0.004)
    assert timing.flags == ()


def test_alone_the_only_rank_is_the_slowest():
    fake = FakeTime()
    timing = DeviceClock(ONE_CORE, quick=True, now=fake.now).time_together(fake.work(0.01))
    assert timing.slowest_rank == 0


@pytest.mark.parametrize(
    ("deviations", "flags"), [(4.5, ()), (5.5, ("outliers",)), (10, ("outliers",))]
)
def test_a_sample_is_an_outlier_from_five_deviations_on(deviations, flags):
    """The median absolute deviation of these is 1, of a normal distribution with 1.4826."""
    offsets = [-1, 1, 0, -1, 1, 0, -1, 1, 0, deviations * 1.4826]
    timing = timing_of([100 + offset for offset in offsets])
    assert timing.flags == flags
    assert timing.spread_fraction == pytest.approx(0.014826)


@pytest.fixture
def two_parts():
    """A clock, and a call of 3 and 5 ms that is slower the first two times."""
    fake, calls = FakeTime(), iter([1.0, 1.0])

    def call(mark):
        fake.seconds += next(calls, 0.0) + 0.003
        mark()
        fake.seconds += 0.005
        mark()

    return fake, call


def test_laps_are_the_parts_of_a_warm_call(two_parts):
    fake, call = two_parts
    laps = DeviceClock(ONE_CORE, quick=True, now=fake.now).laps(call)
    assert len(laps) == 5
    assert all(lap == pytest.approx([0.003, 0.005]) for lap in laps)


def test_laps_of_all_ranks_are_those_of_the_slowest(monkeypatch, two_parts):
    fake, call = two_parts
    clock = DeviceClock(ONE_CORE, quick=True, now=fake.now)
    monkeypatch.setattr(DeviceClock, "_slowest_of", lambda _, laps: [2 * one for one in laps])
    assert all(lap == pytest.approx([0.006, 0.01]) for lap in clock.laps(call, together=True))
    assert all(lap == pytest.approx([0.003, 0.005]) for lap in clock.laps(call))


def test_laps_of_a_gpu_are_between_events_and_nothing_waits_before_the_last(monkeypatch, two_parts):
    torch = pytest.importorskip("torch")
    fake, call = two_parts
    waited = []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            self.at = fake.seconds

        def query(self):
            waited.append(self.at)
            return True

        def elapsed_time(self, end):
            return 1000 * (end.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    place = Place(device="cuda", rank=0, world_size=1, local_rank=0, local_world_size=1)
    laps = DeviceClock(place, quick=True, now=fake.now).laps(call)
    assert all(lap == pytest.approx([0.003, 0.005]) for lap in laps)
    assert len(waited) == len(laps) + 2

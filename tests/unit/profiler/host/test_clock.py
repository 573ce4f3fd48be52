"""The clock on a GPU that is played: device and host told apart, and when they cannot be."""

from dataclasses import replace

import pytest

from tests.unit.profiler.host.fake_gpu import FakeGpu
from trainplan.profiler.host import clock, delay
from trainplan.profiler.host.clock import DeviceClock
from trainplan.profiler.host.delay import MOST_SECONDS, Block
from trainplan.profiler.journal.timing import Repeat
from trainplan.profiler.task import Place

ONE_GPU = Place("cuda", 0, 1, 0, 1)


@pytest.fixture
def played(monkeypatch):
    """A GPU in place of torch's, and a clock of it."""

    def start(**traits):
        gpu = FakeGpu(**traits)
        for module in (clock, delay):
            monkeypatch.setattr(module, "torch", gpu.torch())
        monkeypatch.setattr(clock, "sleep", gpu.sleep)
        return gpu, DeviceClock(ONE_GPU, quick=True, now=gpu.now)

    return start


@pytest.mark.parametrize("cycles_per_second", [1e8, 1e9, 1.5e9, 2e10])
@pytest.mark.parametrize(
    ("device", "host"), [(2e-6, 12e-6), (80e-6, 12e-6), (3e-3, 12e-6), (1e-3, 4e-3), (30e-3, 5e-3)]
)
def test_device_and_host_are_timed_apart(played, device, host, cycles_per_second):
    """However fast the counter of the delay runs, and whichever of the two is the longer."""
    gpu, timer = played(cycles_per_second=cycles_per_second)
    timing = timer.time(gpu.kernel(device, host))
    assert timing.seconds == pytest.approx(device, rel=0.01)
    assert timing.host_seconds == pytest.approx(host, rel=0.01)
    assert timing.in_a_row == pytest.approx(max(device, host), rel=0.01)
    assert timing.flags == ()
    if cycles_per_second < 1.9e9:
        assert len(gpu.delays) == timing.repeats, "none had to be repeated"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_long_task_beats_after_every_call(played, device):
    gpu, timer = played()
    calls, beats = [], []
    place = replace(ONE_GPU, device=device)
    timer = replace(timer, place=place, going_on=lambda: beats.append(gpu.now()))

    def call(mark=None):
        calls.append(gpu.now())
        gpu.kernel(3.0, 1.0)()
        if mark:
            mark()

    timer.time(call)
    timer.laps(call)
    assert len(beats) == len(calls)


def test_the_delay_is_as_long_as_needed_once_the_counter_is_known(played):
    gpu, timer = played(cycles_per_second=1e8)
    timer.time(gpu.kernel(2e-6, 10e-6))
    assert gpu.delays[0] == pytest.approx(10 * gpu.delays[1], rel=0.02)
    assert max(gpu.delays[1:]) < 3 * 201 * 10e-6, "launches of a block, and a margin"


def test_more_kernels_than_a_stream_holds_are_timed_in_shorter_blocks(played):
    gpu, timer = played(depth=64)
    timing = timer.time(gpu.kernel(2e-6, 10e-6))
    assert timing.seconds == pytest.approx(2e-6, rel=0.02)
    assert timing.host_seconds == pytest.approx(10e-6, rel=0.01)
    assert timing.flags == ()


def test_a_call_that_waits_for_the_gpu_is_timed_as_it_comes_and_flagged(played):
    gpu, timer = played()

    def call():
        gpu.launch(1e-3)
        gpu.synchronize()

    timing = timer.time(call)
    assert timing.seconds == pytest.approx(1e-3, rel=0.02)
    assert timing.host_seconds is None
    assert "with_host" in timing.flags
    assert sum(gpu.delays) < 2 * MOST_SECONDS


def test_a_call_that_launches_for_too_long_is_not_held_back(played):
    gpu, timer = played()
    timing = timer.time(gpu.kernel(0.2, MOST_SECONDS))
    assert gpu.delays == []
    assert timing.flags == ("with_host",)


def test_without_a_kernel_that_spins_times_are_flagged(played):
    gpu, timer = played()
    del delay.torch.cuda._sleep
    timing = timer.time(gpu.kernel(2e-6, 10e-6))
    assert timing.flags == ("with_host",)
    assert timing.seconds == pytest.approx(10e-6, rel=0.02)


def test_work_of_the_host_is_not_hidden_behind_a_delay(played):
    gpu, timer = played()
    timing = timer.time(lambda: gpu.sleep(5e-3), on_host=True)
    assert gpu.delays == []
    assert timing.seconds == pytest.approx(5e-3, rel=0.01)
    assert (timing.host_seconds, timing.flags) == (None, ())


def test_a_hiccup_of_the_host_is_measured_again(played):
    gpu, timer = played()
    calls = iter(range(10**6))

    def call():
        gpu.launch(2e-6, 20e-3 if next(calls) == 300 else 10e-6)

    timing = timer.time(call)
    assert timing.seconds == pytest.approx(2e-6, rel=0.02)
    assert timing.flags == ()


def test_ranks_that_come_late_are_waited_for_before_the_first_event(played):
    """Another rank queues its part 3 ms later: the first of the calls in a row waits, unseen."""
    gpu, timer = played()
    state = {"block": -1.0, "ready": 0.0}

    def collective():
        if gpu.free <= gpu.host or len(gpu.delays) != state["block"]:
            state.update(block=len(gpu.delays), ready=gpu.free + 3e-3)
        gpu.launch(50e-6, 10e-6, not_before=state["ready"])

    assert timer.time_together(collective).seconds == pytest.approx(50e-6, rel=0.02)


def test_a_gpu_that_is_never_done_is_given_up(played):
    gpu, timer = played()
    with pytest.raises(TimeoutError, match="not done in 30"):
        timer.time(gpu.kernel(40.0))


@pytest.mark.parametrize(
    ("mine", "other", "all_were"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_all_ranks_cut_a_block_where_one_of_them_was_not_held_back(mine, other, all_were):
    """What a rank does next follows from what all agreed upon, its own time of launching too."""
    torch = pytest.importorskip("torch")
    place = Place("cuda", 0, 2, 0, 2)

    class Two:
        def all_gather_into_tensor(self, every, row, group):
            every[0], every[1] = (
                row[0],
                torch.tensor([2e-3, 0.5, 7e-6, float(not other)], dtype=row.dtype),
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "dist", Two())
        agreed = DeviceClock(place, quick=True, control=object())._slowest(
            Repeat(1e-3, 0.1, host_seconds=5e-6, held_back=mine)
        )
    assert agreed == Repeat(2e-3, 0.5, 1, 7e-6, held_back=all_were)
    block = Block(200).held_back(5e-6)
    assert block.again(agreed.host_seconds).calls == 50

"""Ranks that are forked: how they end, and that none is left; without torch."""

import os
import signal
import time

import pytest

from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.profiler.train import ranks
from trainplan.profiler.train.client import CountedRuns
from trainplan.profiler.train.rank import NotANumberError, ending_of
from trainplan.profiler.train.request import (
    Answered,
    RankReport,
    TrainingFailedError,
    TrainingRequest,
    TrainOrder,
)

LONG = 60.0
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forks beside threads


@pytest.fixture(scope="module")
def order():
    job = Job(
        model=preset("gpt2"),
        training=TrainingSpec(seq_length=64, global_batch_size=8, precision="fp32"),
        cluster=parse_cluster("1x2:h100-sxm"),
    )
    request = TrainingRequest(trainer="megatron-core", job=job, layout=Layout(dp=2), steps=1)
    return TrainOrder(request=request, nproc=2, deadline_seconds=LONG)


@pytest.fixture
def alive():
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


def run(monkeypatch, order, alive, rank):
    """Run two ranks that do what `rank` does, and say how long that took and what is left."""
    monkeypatch.setattr(ranks, "run_rank", lambda number, *_: rank(number))
    forked = []
    fork = os.fork

    def stated():
        pid = fork()
        forked.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", stated)
    started = time.monotonic()
    try:
        return ranks.run_ranks(order, None, alive[0])
    finally:
        assert time.monotonic() - started < LONG / 2
        assert len(forked) == 2
        for pid in forked:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_reports_come_in_the_order_of_ranks(monkeypatch, order, alive):
    def rank(number):
        time.sleep(0.1 * (1 - number))
        return Answered(ending="measured", reports=(RankReport(rank=number),))

    answered = run(monkeypatch, order, alive, rank)
    assert answered.ending == "measured"
    assert [report.rank for report in answered.reports] == [0, 1]


def test_a_rank_that_is_killed_ends_the_others(monkeypatch, order, alive):
    def rank(number):
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)

    answered = run(monkeypatch, order, alive, rank)
    assert answered.ending == "out_of_memory"
    assert answered.reason.startswith("rank 1 was ended by signal 9")


def test_the_last_words_of_a_rank_that_a_signal_ends_are_kept(monkeypatch, order, alive):
    def rank(number):
        if number == 1:
            os.write(2, b"terminate called\n  what(): no peer\nframe 0: here\n\n")
            os.kill(os.getpid(), signal.SIGALRM)
        time.sleep(LONG)

    answered = run(monkeypatch, order, alive, rank)
    assert answered.by_signal
    assert answered.reason == "rank 1 was ended by signal 14; its last words: what(): no peer"


def test_a_rank_that_fails_for_the_sake_of_one_that_a_signal_ends_is_not_why(
    monkeypatch, order, alive
):
    def rank(number):
        if number == 0:
            return Answered(ending="crash", reason="rank 0: connection closed by peer")
        os.write(2, b"out of luck\n")
        os.kill(os.getpid(), signal.SIGUSR1)
        return None

    answered = run(monkeypatch, order, alive, rank)
    assert answered.by_signal
    assert answered.reason == "rank 1 was ended by signal 10; its last words: out of luck"


@pytest.mark.parametrize(("tries", "expected"), [(1, "measured"), (2, "signal 6"), (9, "signal 6")])
def test_a_run_that_a_signal_ends_is_tried_once_more(order, tries, expected):
    class Ended:
        trainer, calls = "megatron-core", 0

        def run(self, request, nproc, deadline):
            self.calls += 1
            if self.calls <= tries:
                raise TrainingFailedError("crash", "signal 6", by_signal=True)
            return ()

    trainers = Ended()
    found = CountedRuns(trainers)(order.request)
    assert (found if isinstance(found, str) else "measured") == expected
    assert trainers.calls == 2


def test_a_run_that_fails_is_not_tried_again(order):
    class Failing:
        trainer = "megatron-core"

        def run(self, request, nproc, deadline):
            raise TrainingFailedError("crash", "rank 0: no")

    with pytest.raises(TrainingFailedError, match="rank 0: no"):
        CountedRuns(Failing())(order.request)


def test_a_rank_that_says_why_ends_the_others(monkeypatch, order, alive):
    def rank(number):
        if number == 0:
            return Answered(ending="crash", reason="rank 0: no")
        time.sleep(LONG)
        return None

    assert run(monkeypatch, order, alive, rank).reason == "rank 0: no"


def test_a_deadline_names_the_ranks_that_did_not_end(monkeypatch, order, alive):
    def rank(number):
        time.sleep(LONG * number)
        return Answered(ending="measured", reports=(RankReport(rank=number),))

    hurried = order.model_copy(update={"deadline_seconds": 0.5})
    answered = run(monkeypatch, hurried, alive, rank)
    assert answered.ending == "hang"
    assert answered.reason.endswith("ranks 1")


def test_ranks_end_when_nobody_waits(monkeypatch, order, alive):
    os.close(alive[1])
    with pytest.raises(ranks.ParentGoneError):
        run(monkeypatch, order, alive, lambda number: time.sleep(LONG))


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (NotANumberError("nan in step 2"), "not_a_number"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), "out_of_memory"),
        (ValueError("heads"), "crash"),
    ],
)
def test_an_error_is_an_ending(error, ending):
    assert ending_of(error) == ending

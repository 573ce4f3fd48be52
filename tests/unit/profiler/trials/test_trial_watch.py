"""When a trial is stopped, by a clock that the test turns."""

from dataclasses import dataclass

import pytest

from trainplan.costmodel.documents import Outcome
from trainplan.profiler.logs.formats import StatedRun
from trainplan.profiler.trials.exit_reasons import Ended, outcome
from trainplan.profiler.trials.follow import AFTER_ERROR_SECONDS, Watch
from trainplan.profiler.trials.run import Limits, TrialRun, Verdict
from trainplan.profiler.trials.steady import enough, steps_to_run, timed

# planner/runtimes/fsdp2/train_fsdp2.txt, train
STEP = "step {}: loss 10.0, gradient norm 1.0, {:.3f} s, peak 0 bytes"
LIMITS = Limits(deadline_s=1000, silence_s=100, queue_s=50)


@dataclass
class Clock:
    time: float = 1e6

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watch(tmp_path, clock):
    return Watch(TrialRun(tmp_path, "run.sh", StatedRun(8, 128, 4), steps=3), LIMITS, clock)


def log(*seconds):
    return [STEP.format(n, one) for n, one in enumerate(seconds, start=1)]


def ended(watch, stop):
    return outcome(watch.run, Ended(stop, watch.reading, watch.symptoms, Verdict()), LIMITS)


def test_steps_are_enough_where_half_of_them_are_within_a_hundredth():
    assert timed({3: 1.0, 1: 9.0, 2: 2.0, 4: 1.5}) == (1.0, 1.5)
    assert Outcome.spread([1.0, 1.0, 5.0]) == 0.0
    assert Outcome.spread([1.0, 2.0, 3.0]) == 0.5
    assert not enough([1.0, 1.0], 3)
    assert enough([1.0, 1.0, 5.0], 3)
    assert enough([1.0, 1.01, 5.0, 5.0, 1.0, 1.0], 3)
    assert not enough([1.0, 1.02, 1.04], 3)
    assert enough([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3)


def test_a_run_has_as_many_steps_as_are_ever_timed():
    assert steps_to_run(5) == 12
    times = {number: float(number) for number in range(1, steps_to_run(5) + 1)}
    assert enough(timed(times), 5)
    assert not enough(timed(dict(list(times.items())[:-1])), 5)


def test_a_watch_goes_on_until_there_are_enough_steps(watch):
    watch.take(log(9.0, 2.0, 1.0, 1.0))
    assert watch.stop() is None
    watch.take([STEP.format(5, 1.0)])
    assert watch.stop() == "enough"


def test_silence_is_counted_from_the_last_line(watch, clock):
    clock.time += 90
    watch.take(["building groups"])
    clock.time += 99
    assert watch.stop() is None
    clock.time += 2
    assert watch.stop() == "silence"
    found = ended(watch, "silence")
    assert (found.ending, found.step_time_s) == ("hang", None)
    assert found.reason == "nothing more was logged; the last line is: building groups"


@pytest.mark.parametrize(
    "lines",
    [
        ["torch.OutOfMemoryError: CUDA out of memory."],
        ["api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 7) of binary: python"],
        [*log(1.0), "[rank1]: ValueError: no"],
    ],
)
def test_a_failed_rank_shortens_the_wait_for_the_others(watch, clock, lines):
    watch.take(lines)
    clock.time += AFTER_ERROR_SECONDS - 1
    assert watch.stop() is None
    clock.time += 2
    assert watch.stop() == "silence"


def test_an_error_before_the_first_step_may_have_been_caught(watch, clock):
    watch.take(["ModuleNotFoundError: No module named 'apex'"])
    clock.time += 99
    assert watch.stop() is None
    clock.time += 2
    assert watch.stop() == "silence"
    found = ended(watch, "silence")
    assert found.ending == "crash"
    assert found.reason == "ModuleNotFoundError: No module named 'apex'"


def test_slow_steps_behind_an_error_that_was_caught_are_waited_for(watch, clock):
    watch.take([*log(15.0, 15.0), "ValueError: tried and caught"])
    clock.time += 74
    assert watch.stop() is None
    clock.time += 2
    assert watch.stop() == "silence"


def test_memory_that_ran_out_on_one_rank_is_the_reason_of_the_silence(watch):
    watch.take(["torch.OutOfMemoryError: CUDA out of memory.", "ValueError: a consequence"])
    assert ended(watch, "silence").ending == "out_of_memory"


def test_a_deadline_keeps_the_steps_that_there_are(watch, clock):
    clock.time += 1001
    watch.take(log(9.0, 2.0))
    assert watch.stop() == "deadline"
    found = ended(watch, "deadline")
    assert found.ending == "hang"
    assert found.reason.startswith("no step was timed in 1000 s; the last line is: step 2")
    watch.take([STEP.format(3, 1.5)])
    assert watch.stop() == "deadline"
    found = ended(watch, "deadline")
    assert (found.ending, found.steps, found.step_time_s) == ("measured", 1, 1.5)
    clock.time += 8  # five slowest steps are 7.5 s
    assert watch.stop() == "silence"
    assert ended(watch, "silence").ending == "hang"


def test_a_queue_costs_nothing_of_the_deadline(watch, clock):
    clock.time += 49
    assert watch.wait() is None
    clock.time += 999
    assert watch.stop() == "silence"
    watch.take(["begin"])
    assert watch.stop() is None


def test_nodes_that_never_come_say_nothing_of_the_layout(watch, clock):
    clock.time += 51
    assert watch.wait() == "queue"
    found = ended(watch, "queue")
    assert (found.ending, found.reason) == ("lost_node", "no nodes in 50 s: nothing was run")

"""Which ranks take part in a measurement."""

import pytest

from trainplan.profiler.bench.attention import attention_tasks
from trainplan.profiler.bench.inputs.tensors import task
from trainplan.profiler.launch.requests import request_for
from trainplan.profiler.task import Place


class Recorder:
    """A clock that says which of its ways was asked."""

    def time(self, call, *, on_host=False):
        return "alone"

    def time_together(self, call, *, on_host=False):
        return "together"

    def timing_of(self, seconds):
        return list(seconds)


def measured(device, processes, **written):
    place = Place(device, 0, 2 * processes, 0, processes)
    made = task(place, "a", lambda clock: (clock.time(len), clock.timing_of([1.0])), **written)
    return made.together, *made.measure(Recorder())


@pytest.mark.parametrize(
    ("device", "processes", "how"),
    [("cpu", 2, "together"), ("cpu", 1, "alone"), ("cuda", 8, "alone")],
)
def test_processes_of_one_cpu_are_measured_at_once(device, processes, how):
    assert measured(device, processes) == (how == "together", how, [1.0])


def test_a_task_that_says_so_keeps_to_one_rank_or_to_its_own_way():
    assert measured("cpu", 2, together=False)[:2] == (False, "alone")
    assert measured("cpu", 2, together=True)[:2] == (True, "alone")


@pytest.mark.parametrize("quick", [True, False])
def test_attention_of_a_cpu_is_measured_on_both_sides_of_larger_blocks(quick):
    """Which begin at 768 tokens."""
    tasks = attention_tasks(request_for(None, "cpu", 2, quick=quick), Place("cpu", 0, 2, 0, 2))
    lengths = {int(one.key.split("seq=")[1].split()[0]) for one in tasks}
    assert sum(length < 768 for length in lengths) >= 2
    assert max(lengths) >= 1024

"""Which ranks take part in a measurement."""

import pytest

from trainplan.profiler.bench.inputs.tensors import task
from trainplan.profiler.task import Place


class Recorder:
    """A clock that says which of its ways was asked."""

    def time(self, call):
        return "alone"

    def time_together(self, call):
        return "together"

    def timing_of(self, seconds):
        return list(seconds)


def measured(device, processes, **said):
    place = Place(device, 0, 2 * processes, 0, processes)
    made = task(place, "a", lambda clock: (clock.time(len), clock.timing_of([1.0])), **said)
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

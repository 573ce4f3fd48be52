"""Copies both ways on a clock of streams: at the same time, and behind what was queued."""

from contextlib import contextmanager
from types import SimpleNamespace

from trainplan.profiler.bench import copies


class Stream:
    """When it is done with all that was queued on it."""

    def __init__(self):
        self.free = 0.0

    def wait_stream(self, other):
        self.free = max(self.free, other.free)


def test_copies_both_ways_run_beside_each_other_behind_what_was_queued(monkeypatch):
    here = Stream()
    current = [here]

    @contextmanager
    def stream(one):
        current.append(one)
        yield
        current.pop()

    def copy(seconds):
        def call():
            current[-1].free += seconds

        return call

    cuda = SimpleNamespace(Stream=Stream, current_stream=lambda: current[-1], stream=stream)
    monkeypatch.setattr(copies, "torch", SimpleNamespace(cuda=cuda))
    both = copies._together(copy(2.0), copy(3.0))
    here.free = 10.0  # a delay
    both()
    assert here.free == 13.0
    both()
    assert here.free == 16.0

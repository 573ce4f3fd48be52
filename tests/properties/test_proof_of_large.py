"""The lower bound of programs too large for all its terms, and of copies to the host."""

from random import Random

import numpy as np
import pytest

from trainplan.costmodel.program.held_activations import with_copies
from trainplan.costmodel.program.ops import Shape
from trainplan.costmodel.schedules import program_for
from trainplan.costmodel.schedules.programs.split_backward import split_backward
from trainplan.costmodel.timeline import one_machine_bound as ends
from trainplan.costmodel.timeline import release_times as earliest
from trainplan.costmodel.timeline.clock import StageSeconds, run
from trainplan.costmodel.timeline.lower_bounds import program_lower_bound

ROUNDING = 1 + 1e-9
SHAPES = {
    "gpipe": Shape(4, 1, 8),
    "1f1b": Shape(4, 1, 12),
    "interleaved": Shape(4, 3, 8),
    "breadth-first": Shape(4, 2, 8),
    "zb-h1": Shape(4, 1, 12),
    "zb-v": Shape(4, 2, 8),
    "v-min": Shape(4, 2, 8),
    "chimera": Shape(4, 1, 8),
    "vocab-1f1b": Shape(4, 1, 8),
}


def uneven(program, random):
    forward, backward, weight = (
        np.array([[random.uniform(0.5, 2.0) for _ in range(program.num_stages)]]) for _ in range(3)
    )
    share = np.full_like(forward, 0.25)
    return StageSeconds(forward, backward + weight, weight, (share, share))


@pytest.mark.parametrize("name", SHAPES)
def test_a_bound_with_terms_left_out_is_no_higher(name, monkeypatch):
    program, random = program_for(name, SHAPES[name]), Random(name)
    for p2p in (0.0, 0.3):
        seconds = uneven(program, random)
        whole = program_lower_bound(program, seconds, p2p)
        with monkeypatch.context() as patch:
            patch.setattr(earliest, "MOST_ARCS", 0)
            patch.setattr(ends, "MOST_OPS", 0)
            part = program_lower_bound(program, seconds, p2p)
        assert 0 < part <= whole * ROUNDING <= run(program, seconds, p2p).makespan * ROUNDING**2


def test_large_programs_are_still_proved(monkeypatch):
    monkeypatch.setattr(earliest, "MOST_ARCS", 0)
    monkeypatch.setattr(ends, "MOST_OPS", 0)
    for name, pp, vpp, m in (("gpipe", 4, 1, 8), ("1f1b", 4, 1, 8), ("interleaved", 4, 2, 8)):
        program = program_for(name, Shape(pp, vpp, m))
        one = np.ones((1, pp * vpp))
        seconds = StageSeconds(one, 2 * one, one)
        bound = program_lower_bound(program, seconds)
        assert bound == pytest.approx(run(program, seconds).makespan)


def test_what_waits_on_the_host_proves_nothing_of_memory():
    fast = split_backward(program_for("dualpipe-v", Shape(4, 2, 8)), defer=False)
    slow = program_for("v-half", Shape(4, 2, 8))
    everything, one = np.ones(8, dtype=bool), np.ones((1, 8))
    alongside = tuple(value * one for value in (0, 0, 0.05, 0.05))
    seconds = StageSeconds(one, 2 * one, one, alongside)
    copied = [with_copies(program, everything) for program in (fast, slow)]
    faster, slower = (run(program, seconds) for program in copied)
    assert faster.makespan < slower.makespan
    assert (faster.peak_activations <= slower.peak_activations).all()
    for program in copied:
        assert program_lower_bound(program, seconds) <= faster.makespan

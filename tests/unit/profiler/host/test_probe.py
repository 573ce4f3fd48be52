"""The fixed product tells a machine that changed from a product that scatters."""

import pytest

from trainplan.costmodel.profiles.profile import Timing
from trainplan.profiler.host.probe import SpeedProbe, changes
from trainplan.profiler.task import Place

PLACE = Place("cuda", 0, 8, 0, 8)


class Clock:
    def __init__(self, *times, scatter=0.002):
        self.left, self.scatter = list(times), scatter

    def time(self, call):
        seconds = self.left.pop(0)
        return Timing(seconds=seconds, repeats=25, half_width_fraction=self.scatter)


def checks(*times, scatter=0.002):
    """Flags of one check after another."""
    probe = SpeedProbe(PLACE, "node", Clock(*times, scatter=scatter), int)
    found = []
    while probe.clock.left:
        found.append([change.flag for change in changes([probe.state()], "gemm", PLACE)])
    return found


def test_a_machine_that_stays_as_it_is_gets_no_remark():
    assert checks(1.0, 1.0, 1.01, 0.99) == [[], [], []]


def test_a_slower_machine_is_remarked_upon_where_a_second_look_agrees():
    assert checks(1.0, 1.2, 1.2) == [["drift"]]
    assert checks(1.0, 1.2, 1.0) == [[]]


def test_a_product_that_scatters_by_itself_flags_nothing_within_its_scatter():
    assert checks(1.0, 1.2, 0.85, 1.15, scatter=0.2) == [[], [], []]
    assert checks(1.0, 2.0, 2.0, scatter=0.2) == [["drift"]]


def test_a_start_in_a_bad_moment_does_not_flag_all_that_follows():
    found = checks(2.0, *[1.0] * 8)
    assert found[0] == ["drift"]
    assert found[-3:] == [[], [], []]


def test_a_change_says_on_which_ranks_it_is():
    probes = [
        SpeedProbe(Place("cuda", rank, 8, rank, 8), "node", Clock(1.0, *slow), int)
        for rank, slow in enumerate([(1.0,), (1.5, 1.5), (1.0,)])
    ]
    (change,) = changes([probe.state() for probe in probes], "gemm", PLACE)
    assert change.ranks == {1}
    assert "1.50 times as long as usual on rank 1 of node" in change.note
    assert "1 of 3 ranks" in change.note


def test_throttling_is_told_whatever_the_product_takes():
    probe = SpeedProbe(PLACE, "node", Clock(1.0, 1.0), int)
    state = probe.state().model_copy(update={"slowed_by": ("power",)})
    assert [(one.flag, one.ranks) for one in changes([state], "gemm", PLACE)] == [
        ("throttled", {0})
    ]
    assert state.ratio == pytest.approx(1.0)

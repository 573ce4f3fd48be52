"""Layouts beside a layout, and outcomes beside a point of a sweep."""

from types import SimpleNamespace

import pytest

from trainplan.costmodel.calibration.machine import context_for
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases.case import Case
from trainplan.planner.comparisons import sweeps
from trainplan.planner.comparisons.neighbours import neighbours
from trainplan.planner.questions.best_plan import SearchOptions


@pytest.mark.parametrize(("pp", "vpp", "most"), [(1, 1, 6), (2, 1, 3), (3, 2, 1), (3, 1, 2)])
def test_recomputing_any_number_of_the_layers_of_a_stage_is_a_neighbour(make_job, pp, vpp, most):
    """Six layers: all of a stage are one of the numbers, none more."""
    layout = Layout(pp=pp, vpp=vpp, dp=6 // pp, schedule="interleaved" if vpp > 1 else "1f1b")
    found = neighbours(context_for(make_job("small-dense", "1x6:h100-sxm", 12)), layout)
    block = [one.recompute_num_layers for one in found if one.recompute_method == "block"]
    assert sorted(block) == [*range(1, most + 1)]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("fastest", range(6))
def test_the_layout_of_a_point_is_tried_at_those_before_and_behind_it(
    make_job, monkeypatch, width, fastest
):
    """Seconds stand for layouts: on two curves of three points the fastest reaches all."""
    case = Case(make_job("small-dense", "1x8:h100-sxm", 64), SearchOptions())

    def at_least(found, _, layout):
        known = found.best.layout if layout is None else min(found.best.layout, layout)
        return SimpleNamespace(best=SimpleNamespace(layout=known))

    monkeypatch.setattr(sweeps, "_at_least", at_least)
    seconds = [9.0] * 6
    seconds[fastest] = 1.0
    searched = (SimpleNamespace(best=SimpleNamespace(layout=one)) for one in seconds)
    found = sweeps._compared([case] * 6, searched, width)
    assert [one.best.layout for one in found] == [1.0] * 6

"""The script that fits the constants does what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests import examples
from trainplan.costmodel import catalog

examples.on_path("accuracy")

import fit_left_out  # noqa: E402
from fit_catalog import with_speed  # noqa: E402
from fit_parameters import (  # noqa: E402
    MEASURED_SPREAD,
    SOURCE_SPREAD,
    VAGUE,
    at_catalog,
    constants_at,
    speed_spread,
    spreads_without,
    value_of,
)
from fit_problem import EVIDENCE, SIGMA, Problem  # noqa: E402
from fit_rows import speed_key, strict_rows  # noqa: E402


@pytest.fixture(scope="module")
def rows():
    return strict_rows()


def test_without_evidence_every_constant_stays_at_its_prior():
    constants = constants_at({})
    for name, entry in catalog.fitted_constants().items():
        assert getattr(constants, name) == pytest.approx(entry.prior)


def test_every_source_counts_alike_but_those_that_are_only_scored(rows):
    weights = {}
    for row in rows:
        weights[row.source] = weights.get(row.source, 0.0) + row.weight
    assert all(weight == pytest.approx(1.0) for name, weight in weights.items() if name != "other")
    assert 0 < weights["other"] < 1


def test_a_fit_to_made_up_residuals_finds_the_constant_that_made_them(rows):
    """Residuals that one parameter explains move that parameter, and others hardly."""
    rng = np.random.default_rng(1)
    slope = rng.normal(size=(len(rows), 3))
    problem = Problem(list(rows), np.array([0.3, 0.3, 0.3]), np.zeros(3), -0.1 * slope[:, 1], slope)
    found = problem.solve(np.ones(len(rows), dtype=bool))
    assert found == pytest.approx([0.0, 0.1, 0.0], abs=0.01)


def test_a_source_left_out_does_not_speak(rows):
    slope = np.ones((len(rows), 1))
    loud = np.array([-1.0 if row.source == "vtrain" else 0.0 for row in rows])
    problem = Problem(list(rows), np.array([0.3]), np.zeros(1), loud, slope)
    keep = np.array([row.source != "vtrain" for row in rows])
    assert problem.solve(keep) == pytest.approx([0.0], abs=1e-6)


def test_what_the_runs_say_of_a_number_lies_between_nothing_and_all(rows):
    """Of three numbers, one they do not depend on, one they do a little, and one much."""
    slope = np.random.default_rng(2).normal(size=(len(rows), 3)) * [0.0, 0.01, 3.0]
    zeros, everything = np.zeros(len(rows)), np.ones(len(rows), dtype=bool)
    learnt = Problem(list(rows), np.full(3, 0.3), np.zeros(3), zeros, slope).learnt(everything)
    assert learnt[0] == 0.0
    assert 0.02 < learnt[1] < 0.5
    assert 0.99 < learnt[2] < 1.0
    sure = Problem(list(rows), np.full(3, 0.03), np.zeros(3), zeros, slope).learnt(everything)
    assert sure[1] < learnt[1] / 10


def test_a_speed_that_one_source_measured_goes_half_the_way_to_it_however_many_runs_it_has(rows):
    """22 runs of SimuMax on B200 are one source, and so is one run of it."""
    own = [row for row in rows if row.source == "simumax"]
    assert {speed_key(row.case) for row in own} == {("b200", "bf16")}
    slope, off = np.ones((len(own), 1)), np.full(len(own), -0.02)
    spread = np.array([speed_spread(own, "b200", "bf16") / MEASURED_SPREAD * SOURCE_SPREAD])
    moved = Problem(own, spread, np.zeros(1), off, slope)._normal(
        np.zeros(1), [(slope, off, EVIDENCE / SIGMA**2 * np.array([row.weight for row in own]))]
    )
    evidence, descent = moved[0][0, 0], moved[1][0]
    assert descent / (evidence + 1 / spread[0] ** 2) == pytest.approx(0.01)


def test_runs_on_gpus_of_amd_are_fitted_and_boards_of_one_chip_are_one_speed(rows):
    keys = {speed_key(row.case)[0] for row in rows}
    assert {"mi300x", "mi325x", "mi355x", "gb300", "h100-sxm"} <= keys
    assert keys.isdisjoint({"mi350x", "b300", "h100-sxm-96gb-500w"})


def test_what_authors_measured_is_not_known_where_their_runs_are_left_out():
    names = ["attention_fixed_seconds", "host_moe", "class half"]
    assert "SimuMax" in catalog.fitted_constants()[names[0]].source
    assert spreads_without(names, [0.4, 0.35, 0.1], "simumax") == [VAGUE, 0.35, 0.1]
    assert spreads_without(names, [0.4, 0.35, 0.1], "vtrain") == [0.4, 0.35, 0.1]


def test_a_fit_begins_where_the_last_one_ended():
    names = ["host_moe", "speed h100-sxm fp8", "class low"]
    start = dict(zip(names, at_catalog(names), strict=True))
    assert value_of("host_moe", start) == pytest.approx(catalog.constants().host_moe)
    speed = catalog.fitted("h100-sxm").sustained["fp8"].value
    assert value_of("speed h100-sxm fp8", start) == pytest.approx(speed)
    assert start["class low"] == 0.0, "all of a speed is with the GPU"


def test_a_number_that_one_source_asks_for_is_moved_by_it_alone(rows, monkeypatch):
    """vTrain alone asks for a tenth more of one number, all others for a fifth more of another."""
    names, rows = ["host_legacy", "host_moe"], rows[::4]
    own = np.array([row.source == "vtrain" for row in rows])
    slope = np.stack([np.where(own, 1.0, 0.0), np.where(own, 0.0, 1.0)], axis=1)
    theta = np.array([0.1, 0.2])
    problem = Problem(list(rows), np.array([0.1, 0.1]), theta, np.zeros(len(rows)), slope)
    monkeypatch.setattr(
        fit_left_out, "residuals", lambda left, at, source: np.full(len(left), 0.05)
    )
    found = fit_left_out.leave_one_out(problem, names, lambda line: None)
    assert found["constants"]["host_legacy"]["moved_by"] == ["vtrain"]
    assert found["constants"]["host_moe"]["moved_by"] == []
    assert found["constants"]["host_legacy"]["rests_on"] == ["vtrain"]
    assert found["constants"]["host_moe"]["rests_on"] == []
    assert found["residuals"] == {row.run.id: 0.05 for row in rows}
    assert found["fitted"]["numbers"] == 2


def test_the_catalog_holds_what_the_fit_wrote():
    """No value strays further from its prior than four spreads: nobody edits it by hand."""
    for name, entry in catalog.fitted_constants().items():
        assert abs(math.log(entry.value / entry.prior)) < 4 * entry.spread, name


def test_writing_one_speed_leaves_the_rest_of_the_file_alone():
    text = '[gpu.x.sustained]\nbf16 = { value = 0.5, source = "a" }\n\n[gpu.y]\nkeep = 1\n'
    new = with_speed(text, "x", "bf16 = { value = 0.6", "b")
    assert new == text.replace('0.5, source = "a"', '0.6, source = "b"')
    added = with_speed(new, "x", "fp8 = { value = 0.9", "c")
    assert added.count("[gpu.x.sustained]") == 1
    assert 'fp8 = { value = 0.9, source = "c" }' in added

"""The script that fits the constants does what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests import examples
from trainplan.costmodel import catalog

examples.on_path("accuracy")

from fit_catalog import with_speed  # noqa: E402
from fit_parameters import constants_at  # noqa: E402
from fit_problem import Problem  # noqa: E402
from fit_rows import strict_rows  # noqa: E402


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

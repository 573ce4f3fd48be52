"""The chance to fit, and the margin that a chance needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.cli.options import names
from trainplan.costmodel import catalog
from trainplan.costmodel.uncertainty import FIT_CHANCE, fit_chance, margin_of, peak_scale

T_OF_90, T_OF_975 = 1.6377444, 3.1824463
"""Quantiles of Student's t with 3 degrees of freedom, from tables."""


@pytest.mark.parametrize(("t", "chance"), [(0.0, 0.5), (T_OF_90, 0.9), (T_OF_975, 0.975)])
@pytest.mark.parametrize("scale", [0.02, 0.1])
def test_the_chance_is_that_of_students_t(t, chance, scale):
    e = 2.718281828459045
    assert fit_chance(1e9, 1e9 * e ** (t * scale), scale) == pytest.approx(chance, abs=1e-6)
    assert fit_chance(1e9 * e ** (t * scale), 1e9, scale) == pytest.approx(1 - chance, abs=1e-6)


@given(st.floats(0.5, 0.999), st.sampled_from(["bf16", "fp8"]))
def test_a_peak_that_leaves_the_margin_fits_with_the_chance(make_job, chance, precision):
    job = make_job("llama3-8b", "1x8:h100-sxm", 16, precision=precision)
    margin = margin_of(job, chance)
    assert 0 <= margin < 1
    at = fit_chance(1 - margin, 1.0, peak_scale(job))
    assert at == pytest.approx(chance, abs=0.02)
    assert fit_chance(1 - margin - 0.001, 1.0, peak_scale(job)) > chance


def test_half_a_chance_needs_nothing_free(make_job):
    assert margin_of(make_job("llama3-8b", "1x8:h100-sxm", 16), 0.3) == 0


def test_what_nobody_measured_is_known_no_better_than_anything_measured(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm", 16)
    scales = catalog.intervals().peaks.scales
    assert peak_scale(job.model_copy(update={"runtime": "maxtext"})) == max(scales.values())
    assert peak_scale(job) < max(scales.values())


def test_the_default_margins_are_a_few_percent(make_job):
    for precision in ("bf16", "fp8"):
        job = make_job("llama3-8b", "1x8:h100-sxm", 16, precision=precision)
        assert 0.02 < margin_of(job, FIT_CHANCE) < 0.1


def test_the_commands_take_the_same_chance_by_default():
    assert names.FIT_CHANCE == FIT_CHANCE

"""Rounding withholds no finished proof, and finishes none."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.timeline.lower_bounds import settled
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions import best_plan as wanted
from trainplan.planner.questions.best_plan import search


@pytest.mark.parametrize("steps", [-3, -1, 0, 1, 3])
def test_a_bound_that_rounding_alone_tells_from_the_value_is_the_value(steps):
    value, bound = 7.3, 7.3
    for _ in range(abs(steps)):
        bound = float(np.nextafter(bound, np.inf * steps))
    assert settled(value, bound) == value


def test_a_smaller_bound_stays_what_it_is():
    assert settled(7.3, 7.3 * (1 - 1e-8)) == 7.3 * (1 - 1e-8)
    assert settled(np.inf, 7.3) == 7.3
    assert settled(np.inf, np.inf) == np.inf


def test_an_answer_whose_bound_is_below_it_by_rounding_is_proved(make_job, monkeypatch):
    job, answer = make_job("small-dense", "1x8:h100-sxm"), wanted.answer

    def rounded(context):
        found = answer(context)
        bound = found.target.lower_bound * (1 - 4.4e-16)
        return replaced(found, bound)

    monkeypatch.setattr(wanted, "answer", rounded)
    proof = search(job, SearchOptions(search_options="none", slack=0.0)).certificate
    assert proof.optimal
    assert proof.gap_fraction == 0


def replaced(reached, bound):
    """The same with a bound that some sum was rounded to."""
    target = reached.target.model_copy(update={"lower_bound": bound})
    return replace(reached, target=target, found=replace(reached.found, lower_bound_s=bound))


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_a_search_prices_products_scaled_as_the_answer_has_them(make_job, recipe):
    job = make_job("llama3-8b", "1x2:h100-sxm", 16, 8192, precision="fp8")
    options = job.options.model_copy(update={"fp8_recipe": recipe})
    job = job.model_copy(update={"runtime": "torchtitan", "options": options})
    found = search(job, SearchOptions(top=2, only_written=False, slack=0.0, search_options="none"))
    proof, first = found.certificate, found.fastest.estimate.step_time_s
    assert proof.optimal
    assert first == min(one.estimate.step_time_s for one in found.candidates)
    assert proof.uneven_stages.even_step_time_s >= first

"""What is split before the work for uneven stages begins."""

from functools import lru_cache

import pytest

from tests.budgets import Steps
from trainplan.costmodel.calibration.machine import NOTHING
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.even import EvenAnswer
from trainplan.planner.goals.uneven import faster_splits, splits_of
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.work.budget import Alone, Unlimited


class Three(Alone):
    """Work in three parts."""

    parts = 3


@pytest.fixture(scope="module")
def siblings_job(make_job):
    """Llama 3 70B, where other virtual stages of the best even degrees split better."""
    return make_job("llama3-70b", "4x8:h100-sxm", 64, 4096)


@lru_cache(maxsize=1)
def even_stages(job):
    """What the search for even stages leaves to that for others."""
    context = SearchContext.of(job, SearchOptions(), NOTHING, Unlimited())
    return EvenAnswer.of(context.group, context.search(top=10).run(context.budget))


def run(job, most, *, budget=None, workers=None, brief=False):
    """What uneven stages give after so much work."""
    of = SearchOptions(), NOTHING, budget or Unlimited(), workers or Alone()
    context = SearchContext.of(job, *of)
    even = even_stages(job)
    return faster_splits(context, even, splits_of(context, even), most=most, brief=brief)


@pytest.fixture(scope="module")
def tried(siblings_job):
    return run(siblings_job, 0)


def test_what_is_tried_first_does_not_depend_on_the_number_of_workers(siblings_job, tried):
    one, many = tried, run(siblings_job, 0, workers=Three())
    assert one.step_time_s == many.step_time_s
    assert one.lower_bound_s == many.lower_bound_s
    assert one.table.row(0) == many.table.row(0)


def test_a_limit_of_time_does_not_take_away_what_is_tried_first(siblings_job, tried):
    late = run(siblings_job, 0, budget=Steps(8))
    assert late.step_time_s <= 1.02 * tried.step_time_s

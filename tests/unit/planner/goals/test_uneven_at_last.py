"""Where the work for uneven stages ends before a proof, what looks fast is split at last."""

from functools import lru_cache

import numpy as np
import pytest

from tests.budgets import Steps
from trainplan.costmodel.measured import NOTHING
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.uneven import faster_splits, splits_below
from trainplan.planner.plan import SearchOptions
from trainplan.planner.space import parse_choice
from trainplan.planner.stages.heuristics import MOST_TRIED, try_promising
from trainplan.planner.work.budget import Unlimited
from trainplan.planner.work.workers import Alone


class Three(Alone):
    """Work in three parts."""

    parts = 3


@pytest.fixture
def siblings_job(make_job):
    """Qwen3-30B-A3B, where other virtual stages of the best even degrees split better."""
    return make_job("qwen3-30b-a3b", "4x8:h100-sxm", 64, 4096)


@pytest.fixture
def leaders_job(make_job):
    """DeepSeek-V3, whose even stages are so poor that one rank without pipeline is best of them."""
    return make_job("deepseek-v3", "32x8:h100-sxm", 512, 4096)


class Ticks(Steps):
    """Seconds that go by only when somebody asks whether they are over."""

    def seconds_left(self) -> float:
        return max(0.0, self.steps)


FEW = tuple(parse_choice(text, excluded=False) for text in ("cp=1", "micro_batch_size=1", "etp=1"))


@lru_cache(maxsize=1)
def even_stages(job):
    """What the search for even stages leaves to that for others."""
    context = SearchContext(SearchOptions(), NOTHING, Unlimited())
    return context.search(job, top=10).run(context.budget)


def run(job, max_expanded, *, budget=None, workers=None, last=True):
    """What uneven stages give after so much work."""
    options, found = SearchOptions(), even_stages(job)
    context = SearchContext(options, NOTHING, budget or Unlimited(), workers or Alone())
    return faster_splits(context, job, found, max_expanded=max_expanded, one_of_many=not last)


def test_a_sibling_of_the_answer_is_found_after_the_work_is_done(siblings_job):
    without = run(siblings_job, 0, last=False)
    uneven_result = run(siblings_job, 0)
    assert uneven_result.step_time_s < without.step_time_s
    degrees = ("tp", "cp", "pp", "dp", "ep", "etp")
    assert [getattr(uneven_result.table, name) for name in degrees] == [
        getattr(without.table, name) for name in degrees
    ]
    assert uneven_result.expanded - without.expanded <= MOST_TRIED


def test_layouts_of_other_degrees_are_found_where_the_bounds_hide_them(leaders_job):
    context = SearchContext(SearchOptions(fix=FEW), NOTHING, Unlimited())
    found = context.search(leaders_job, top=10).run(context.budget)
    splits = splits_below(context, leaders_job, found.value, roots=found.roots)
    before = splits.run(2)
    uneven_result = splits.run(2, at_last=try_promising)
    assert uneven_result.step_time_s < 0.97 * before.step_time_s <= 0.97 * found.value
    assert uneven_result.table.pp > 1
    assert uneven_result.lower_bound_s == before.lower_bound_s


def test_what_is_tried_at_last_does_not_depend_on_the_number_of_workers(siblings_job):
    one, many = (run(siblings_job, 0, workers=them) for them in (Alone(), Three()))
    assert one.step_time_s == many.step_time_s
    assert one.lower_bound_s == many.lower_bound_s
    assert one.table.row(0) == many.table.row(0)


def test_a_limit_of_time_does_not_take_away_what_is_tried_at_last(siblings_job):
    uneven_result = run(siblings_job, 0)
    late = run(siblings_job, 0, budget=Steps(8))
    assert late.step_time_s <= 1.02 * uneven_result.step_time_s  # which splits chunks freely too


def test_nothing_more_is_tried_after_a_proof(make_job):
    def fail(splits):
        raise AssertionError

    job = make_job("small-dense", "1x8:h100-sxm", 8)
    context = SearchContext(SearchOptions(), NOTHING, Unlimited())
    found = splits_below(context, job, np.inf).run(at_last=fail)
    assert found.lower_bound_s == found.step_time_s


def tried_at_last(job, seconds):
    """Seconds left whenever something is tried at last, of so many, and what is known then."""
    found = even_stages(job)
    context, left = SearchContext(SearchOptions(), NOTHING, Ticks(seconds)), []
    splits = splits_below(context, job, found.value, roots=found.roots)
    uneven_result = splits.run(at_last=lambda some: left.append(some.budget.seconds_left()))
    assert uneven_result.lower_bound_s < uneven_result.step_time_s
    return left


def test_a_limit_of_time_leaves_some_for_what_is_tried_at_last(siblings_job):
    (left,) = tried_at_last(siblings_job, 10)
    assert left >= 1


def test_a_short_limit_of_time_goes_to_the_proof_alone(siblings_job):
    assert tried_at_last(siblings_job, 4) == []

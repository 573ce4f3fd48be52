"""Where the work for uneven stages ends before a proof, what looks fast is split at last."""

from functools import lru_cache

import pytest

from tests.budgets import Steps
from trainplan.costmodel.measured import NOTHING
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.even import EvenAnswer
from trainplan.planner.goals.uneven import Limits, Splits, faster_splits, splits_below
from trainplan.planner.plan import SearchOptions
from trainplan.planner.space import parse_choice
from trainplan.planner.stages.heuristics import MOST_TRIED
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


FEW = tuple(parse_choice(text, excluded=False) for text in ("cp=1", "micro_batch_size=1", "etp=1"))


@lru_cache(maxsize=2)
def even_stages(job, fix=()):
    """What the search for even stages leaves to that for others."""
    context = SearchContext(SearchOptions(fix=fix), NOTHING, Unlimited())
    return EvenAnswer.of(context.group(job), context.search(job, top=10).run(context.budget))


def run(job, most, *, budget=None, workers=None, brief=False):
    """What uneven stages give after so much work."""
    context = SearchContext(SearchOptions(), NOTHING, budget or Unlimited(), workers or Alone())
    return faster_splits(context, even_stages(job), most=most, brief=brief)


def test_a_sibling_of_the_answer_is_found_after_the_work_is_done(siblings_job):
    without = run(siblings_job, 0, brief=True)
    uneven_result = run(siblings_job, 0)
    assert uneven_result.step_time_s < without.step_time_s
    degrees = ("tp", "cp", "pp", "dp", "ep", "etp")
    assert [getattr(uneven_result.table, name) for name in degrees] == [
        getattr(without.table, name) for name in degrees
    ]
    assert uneven_result.expanded - without.expanded <= MOST_TRIED


def test_layouts_of_other_degrees_are_found_where_the_bounds_hide_them(leaders_job):
    context = SearchContext(SearchOptions(fix=FEW), NOTHING, Unlimited())
    found = even_stages(leaders_job, FEW)
    search = splits_below(context, found.groups[0], Limits(found.value), roots=found.nodes[0])
    splits = Splits([search], found.value, context.budget)
    splits.open(2)
    before = splits.result()
    splits.at_last((0, 0), found.finalists, promising=True)
    after = splits.result()
    assert after.step_time_s < 0.97 * before.step_time_s <= 0.97 * found.value
    assert after.table.pp > 1
    assert after.lower_bound_s == before.lower_bound_s


def test_what_is_tried_at_last_does_not_depend_on_the_number_of_workers(siblings_job):
    one, many = (run(siblings_job, 0, workers=them) for them in (Alone(), Three()))
    assert one.step_time_s == many.step_time_s
    assert one.lower_bound_s == many.lower_bound_s
    assert one.table.row(0) == many.table.row(0)


def test_a_limit_of_time_does_not_take_away_what_is_tried_first(siblings_job):
    uneven_result = run(siblings_job, 0)
    late = run(siblings_job, 0, budget=Steps(8))
    assert late.step_time_s <= 1.02 * uneven_result.step_time_s


def test_nothing_more_is_tried_after_a_proof(make_job, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError

    monkeypatch.setattr("trainplan.planner.goals.uneven.try_promising", fail)
    proved = run(make_job("small-dense", "1x8:h100-sxm", 8), float("inf"))
    assert proved.lower_bound_s == proved.step_time_s

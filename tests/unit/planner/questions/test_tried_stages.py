"""Uneven stages of changed jobs: tried, for a proof of each would take long."""

from dataclasses import replace

import pytest

from trainplan.planner.cases.case import Case
from trainplan.planner.comparisons.parameters import parse_varied
from trainplan.planner.comparisons.sweeps import sweep
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.case_search import outcome
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited

HELD = SearchOptions(search_options="none", memory_margin=0.05)
"""As of a plan that was written: its settings are options of its job, its margin is stated."""


@pytest.fixture(scope="module", name="case")
def llama(make_job):
    """40 of its layers are best with fewer on the ranks of the embedding and the head."""
    job = make_job("llama3-70b", "2x8:h100-sxm", 64, 8192)
    half = job.model.model_copy(update={"num_hidden_layers": 40})
    return Case(job.model_copy(update={"model": half}), HELD)


@pytest.fixture(scope="module", name="best")
def searched(case):
    return search(case.job, HELD.model_copy(update={"top": 1, "slack": 0.0})).best


def test_a_point_of_a_sweep_has_stages_about_as_good_as_those_of_a_search(case, best):
    swept = sweep(case, [parse_varied("gpus=16")], Unlimited())
    found = swept.curves[0].points[0].outcome
    assert best.layout.stages is not None
    assert found.best.layout.stages is not None
    assert found.best.estimate.step_time_s <= 1.01 * best.estimate.step_time_s


def test_what_is_only_tried_is_proved_with_even_stages_alone(case, best):
    found = outcome(case, Unlimited())
    assert found.status == "even"
    assert found.best.estimate.step_time_s > best.estimate.step_time_s


@pytest.mark.parametrize("gpus", [16, 32])
def test_the_answer_of_a_similar_job_is_tried(case, best, gpus):
    near = best.layout.resized(gpus)
    assert near.world_size == gpus
    assert outcome(case.near(near), Unlimited()).best.estimate == best.estimate


def test_no_point_is_slower_than_with_the_layout_of_its_neighbour(case, best, monkeypatch):
    def searched(cases, budget, workers, uneven):
        slow, fast = (outcome(one, budget) for one in cases)
        return iter((replace(slow, best=best), fast))

    monkeypatch.setattr("trainplan.planner.comparisons.sweeps.outcomes", searched)
    slow, fast = sweep(case, [parse_varied("nic=1,1.1")], Unlimited()).curves[0].points
    assert fast.outcome.best.layout == best.layout
    assert fast.tokens_per_s >= slow.tokens_per_s


def test_no_point_is_slower_than_with_the_layout_of_the_curve_before(case, best, monkeypatch):
    held = tuple(parse_choice(text, excluded=False) for text in ("tp=8", "stages=even"))
    slow = replace(
        outcome(Case(case.job, HELD.model_copy(update={"fix": held})), Unlimited()), status="found"
    )
    none = replace(slow, status="untried", best=None)
    found = (replace(slow, best=best), none, slow, none)
    monkeypatch.setattr("trainplan.planner.comparisons.sweeps.outcomes", lambda *_: iter(found))
    varied = [parse_varied("nic=1,2"), parse_varied("memory_gib=80,90")]
    for curve in sweep(case, varied, Unlimited()).curves:
        assert curve.points[0].outcome.best.layout == best.layout


def test_no_point_is_slower_than_with_the_layout_of_the_plan(case, best, monkeypatch):
    held = tuple(parse_choice(text, excluded=False) for text in ("tp=8", "stages=even"))
    slow = outcome(Case(case.job, HELD.model_copy(update={"fix": held})), Unlimited())
    late = replace(slow, status="found")
    monkeypatch.setattr("trainplan.planner.comparisons.sweeps.outcomes", lambda *_: iter((late,)))
    swept = sweep(case.near(best.layout), [parse_varied("nic=1")], Unlimited())
    assert swept.curves[0].points[0].outcome.best.layout == best.layout


def test_an_answer_that_is_illegal_here_is_not_tried(case, best):
    held = parse_choice(f"tp={2 * best.layout.tp}", excluded=False)
    options = SearchOptions(fix=(held,))
    found = outcome(Case(case.job, options).near(best.layout), Unlimited())
    assert found.best.layout.tp == 2 * best.layout.tp


def test_degrees_that_no_layout_may_have_here_are_not_tried(case, best):
    held = parse_choice("zero_stage=2", excluded=False)
    assert best.layout.pp > 1
    found = outcome(Case(case.job, SearchOptions(fix=(held,))).near(best.layout), Unlimited())
    assert found.best.layout.pp == 1


def test_a_layout_keeps_its_degrees_on_other_gpus(best):
    copy = best.layout.world_size // best.layout.dp
    assert best.layout.resized(3 * copy).dp == 3
    assert best.layout.resized(copy + 1) is None


def test_where_no_even_stages_fit_some_uneven_ones_are_found(make_job):
    job = make_job("llama3-70b", "4x8:h100-sxm", 128, 8192)
    fix = tuple(
        parse_choice(text, excluded=False)
        for text in ("tp=8", "pp=4", "vpp=1", "cp=1", "recompute=none", "offload=0")
    )
    stages = parse_choice("stages=even", excluded=False)
    even = search(job, HELD.model_copy(update={"fix": (*fix, stages), "slack": 0.0}))
    memory = even.best.estimate.memory
    margin = 1 - (memory.peak_reserved_bytes - 1) / memory.capacity_bytes
    held = HELD.model_copy(update={"fix": fix, "memory_margin": margin})
    found = outcome(Case(job, held), Unlimited())
    assert found.best.layout.stages is not None
    assert found.best.estimate.memory.peak_reserved_bytes < memory.peak_reserved_bytes


def test_the_slack_of_memory_is_counted_from_the_fastest_step_whatever_its_stages(case, best):
    more = {
        "objective": "memory",
        "slack": 0.003,
        "fix": (parse_choice("offload=0", excluded=False),),
    }
    plan = search(case.job, HELD.model_copy(update=more))
    target, memory = plan.certificate.objective, plan.best.estimate.memory
    assert target.step_time_limit_s == pytest.approx(1.003 * best.estimate.step_time_s)
    assert plan.best.estimate.step_time_s <= target.step_time_limit_s
    assert target.value == pytest.approx(memory.peak_reserved_bytes)
    assert memory.headroom_bytes >= best.estimate.memory.headroom_bytes
    even = HELD.model_copy(update={"fix": (parse_choice("stages=even", excluded=False),)})
    even = even.model_copy(update={"slack": 0.0, "top": 1})
    assert search(case.job, even).best.estimate.step_time_s > target.step_time_limit_s
    assert plan.best.layout.stages is not None

"""A search over settings: the best of all its combinations, with a proof over them."""

import json

import pytest

from tests.budgets import Steps
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.planner.documents.chosen import chosen_from_json
from trainplan.planner.documents.document import plan_json
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.settings.combinations import DEFAULT, combinations
from trainplan.planner.space import parse_choice

EVEN = (parse_choice("stages=even", excluded=False),)
FEW = (*EVEN, *(parse_choice(text, excluded=False) for text in ("cp=1", "micro_batch_size=1")))
FASTEST = SearchOptions(slack=0.0)
"""Whether anybody published such a setting or not."""


@pytest.fixture(scope="module", name="job")
def experts(make_job):
    return make_job("small-moe", "1x4:h100-sxm", 16).model_copy(
        update={"runtime": "megatron-bridge"}
    )


@pytest.fixture(scope="module", name="plan")
def searched(job):
    return search(job, FASTEST)


@pytest.fixture(scope="module")
def unvaried(job):
    return held(job)


def held(job, **more):
    """The fastest layout, not a simpler one within the slack."""
    return search(job, FASTEST.model_copy(update={"search_options": "none", **more}))


def test_the_answer_is_the_best_of_all_combinations(job, plan):
    steps = [
        held(one.job, top=1, fix=FEW, only_answer=True).best.estimate.step_time_s
        for one in combinations(context_for(job), "safe")
    ]
    even = search(job, FASTEST.model_copy(update={"fix": FEW})).best.estimate.step_time_s
    assert even == pytest.approx(min(steps), rel=1e-12)
    assert even < held(job, fix=FEW, only_answer=True).best.estimate.step_time_s
    assert plan.best.estimate.step_time_s <= even


def test_the_proof_holds_over_all_combinations(plan):
    proof = plan.certificate
    assert proof.optimal
    assert proof.settings.lower_bound >= proof.lower_bound_s == plan.best.estimate.step_time_s
    values = [one.value for one in proof.settings.combinations if one.value is not None]
    assert min(values) == pytest.approx(plan.best.estimate.step_time_s, rel=1e-9)


def test_the_plan_holds_the_settings_of_its_answer(job, plan):
    chosen = plan.certificate.settings.chosen
    assert chosen
    assert set(plan.job.options.arguments().values()) == set(chosen)
    again, layout = chosen_from_json(json.dumps(plan_json(plan)))
    assert (again.options, layout) == (plan.job.options, plan.best.layout)
    assert held(plan.job).best.estimate.step_time_s == pytest.approx(
        plan.best.estimate.step_time_s, rel=1e-12
    )


def test_settings_that_save_the_answer_nothing_are_left_at_their_default(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm", 64, 8192)
    flat = (parse_choice("tp=1", excluded=False), parse_choice("pp=1", excluded=False))
    plan = search(job, SearchOptions(fix=flat))
    assert plan.certificate.settings.combinations
    assert plan.job.options == RuntimeOptions()


def test_a_stated_setting_is_kept(job):
    stated = job.model_copy(update={"options": RuntimeOptions(moe_dispatcher="alltoall")})
    assert (
        search(stated, SearchOptions(top=1, fix=EVEN, slack=0.0)).job.options.moe_dispatcher
        == "alltoall"
    )


def test_none_searches_the_settings_of_the_job_alone(unvaried):
    assert unvaried.certificate.settings is None
    assert unvaried.job.options == RuntimeOptions()


def test_other_objectives_keep_the_settings_of_the_fastest_layout(job, plan):
    lean = search(job, SearchOptions(objective="memory", fix=EVEN, only_answer=True))
    assert lean.job.options == plan.job.options
    assert lean.certificate.settings.combinations == ()


def test_when_the_time_is_over_the_bounds_still_hold(job, plan):
    hurried = search(job, SearchOptions(top=1, slack=0.0), Steps(3))
    assert hurried.certificate.lower_bound_s <= plan.best.estimate.step_time_s
    assert hurried.best.estimate.step_time_s >= plan.best.estimate.step_time_s
    assert hurried.certificate.time_limit_struck
    assert not plan.certificate.time_limit_struck


def test_the_space_lists_every_axis_and_the_values_of_settings(job, plan, unvaried):
    every = combinations(context_for(job), "safe")
    space = plan.certificate.space
    assert {axis.name for axis in AXES} <= space.keys()
    assert space["stages"] == ["even", "uneven"]
    assert held(job, fix=EVEN, only_answer=True).certificate.space["stages"] == ["even"]
    for name in {one.name for combination in every for one in combination.settings}:
        default, *values = space[name]
        texts = {
            one.text for combination in every for one in combination.settings if one.name == name
        }
        assert default == DEFAULT
        assert {f"{name}={value}" for value in values} == texts
    assert unvaried.certificate.space.keys() == {axis.name for axis in AXES}

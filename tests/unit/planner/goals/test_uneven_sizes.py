"""Money and the fewest GPUs are searched with uneven stages too, on every size of the cluster."""

import json
from functools import partial

import pytest

from tests.budgets import Steps
from tests.grids import number
from trainplan.cli.pages.plan import certificate_text
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.base.units import SECONDS_PER_DAY
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.documents.chosen import chosen_from_json
from trainplan.planner.documents.document import plan_json
from trainplan.planner.goals.cluster_sizes import part_jobs, scale_of
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice

PIPELINE = tuple(
    parse_choice(text, excluded=False) for text in ("pp=2", "vpp=1", "cp=1", "offload=0")
)
Plain = partial(SearchOptions, search_options="none", slack=0.0)
"""Settings are searched by other tests: here are sizes and stages."""
EVEN = (*PIPELINE, parse_choice("stages=even", excluded=False))


@pytest.fixture(scope="module")
def job(make_job):
    """On one node or two: six layers, and a head that makes the second half of them longer."""
    job = make_job("small-dense", "2x4:h100-sxm", 24, tokens=10**9)
    model = job.model.model_copy(update={"vocab_size": 512_000, "num_hidden_layers": 6})
    group = job.cluster.groups[0].model_copy(update={"price_per_gpu_hour": 2.0})
    cluster = job.cluster.model_copy(update={"groups": (group,)})
    return job.model_copy(update={"model": model, "cluster": cluster})


@pytest.fixture(scope="module")
def plan(job):
    """The cheapest."""
    return search(job, Plain(fix=PIPELINE, objective="cost"))


@pytest.fixture(scope="module")
def even(job):
    """The cheapest with even stages."""
    return search(job, Plain(fix=EVEN, objective="cost"))


def money(job, fix):
    """Of the fastest layout, searched for its time on every size."""
    plans = [(one, search(one, Plain(fix=fix))) for one in part_jobs(job)]
    return {
        one.cluster.num_gpus: plan.best.estimate.step_time_s * scale_of(one, "cost")
        for one, plan in plans
    }


def test_no_size_is_cheaper_with_stages_of_any_kind(job, plan, even):
    sizes = money(job, PIPELINE)
    target = plan.certificate.objective
    assert min(sizes.values()) <= target.value * (1 + 1e-9)  # of sizes no chunks are opened
    assert target.lower_bound == pytest.approx(target.value)
    assert target.value < even.certificate.objective.value
    assert plan.best.layout.stages is not None
    for one in target.tried:
        assert one.bound <= sizes[one.num_gpus] * (1 + 1e-9)


def test_the_page_says_that_all_splits_were_searched(plan, even):
    assert "Proved cheapest of" in certificate_text(plan)
    assert "all splits of their layers into stages" in certificate_text(plan)
    assert "splits" not in certificate_text(even)
    assert even.certificate.uneven_stages is None
    assert chosen_from_json(json.dumps(plan_json(plan)))[1] == plan.best.layout


def days_of_run(job, step_s):
    steps = -(-job.training.tokens // job.training.tokens_per_step)
    return step_s * steps / SECONDS_PER_DAY


@pytest.fixture(scope="module")
def steps_of_small(job):
    """Seconds of the fastest layout on one node, with stages of any kind and with even ones."""
    small = part_jobs(job)[0]
    plans = (search(small, Plain(fix=fix)) for fix in (PIPELINE, EVEN))
    return tuple(plan.best.estimate.step_time_s for plan in plans)


def test_a_deadline_that_only_uneven_stages_meet_is_met(job, steps_of_small):
    small, (uneven_result, even) = part_jobs(job)[0], steps_of_small
    days = days_of_run(job, (uneven_result + even) / 2)
    plan = search(small, Plain(fix=PIPELINE, deadline_days=days))
    assert plan.best.estimate.step_time_s == pytest.approx(uneven_result)
    with pytest.raises(SpecError, match=r"on all 4 GPUs takes [0-9.]+ hours"):
        search(small, Plain(fix=EVEN, deadline_days=days))
    with pytest.raises(SpecError, match=r"the fastest on all 4 GPUs takes"):
        search(small, Plain(fix=PIPELINE, deadline_days=days_of_run(job, uneven_result * 0.99)))


def test_uneven_stages_meet_a_deadline_that_even_ones_miss(job, steps_of_small):
    uneven_result, even = steps_of_small
    days = days_of_run(job, (uneven_result + even) / 2)
    wanted = {"objective": "gpus", "deadline_days": days}
    plan = search(job, Plain(fix=PIPELINE, **wanted))
    more = search(job, Plain(fix=EVEN, **wanted))
    assert plan.job.cluster.num_gpus == 4 < more.job.cluster.num_gpus
    assert plan.best.estimate.step_time_s == pytest.approx(uneven_result)
    assert plan.certificate.objective.gap_fraction == 0
    assert {one.layout.stages is None for one in plan.candidates} == {False}


def test_the_fewest_gpus_run_the_fastest_layout_they_can(job):
    days = 365.0
    plan = search(job, Plain(fix=PIPELINE, objective="gpus", deadline_days=days))
    fastest = search(plan.job, Plain(fix=PIPELINE))
    assert plan.best.estimate.step_time_s == pytest.approx(fastest.best.estimate.step_time_s)
    assert plan.certificate.uneven_stages is not None


def test_a_search_cut_short_gives_the_layout_it_has_and_claims_no_proof(job, plan):
    whole = plan.certificate.objective
    for steps in range(0, 60, number(27, by_night=6)):
        cut = search(job, Plain(fix=PIPELINE, objective="cost"), Steps(steps))
        target = cut.certificate.objective
        assert isinstance(cut.best.layout, Layout)
        assert target.lower_bound <= whole.value * (1 + 1e-9)
        assert target.value >= whole.value * (1 - 1e-9)

"""The search of clusters with unlike node groups."""

import numpy as np
import pytest

from tests.budgets import Steps
from tests.e2e.command import plan as run_plan
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.hardware.cluster import BetweenGroups, parse_cluster
from trainplan.costmodel.layout.layout import Layout, StageSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice
from trainplan.planner.space.choices import rules_of_job
from trainplan.planner.stages.groups_search import HeterogeneousSearch
from trainplan.planner.work.budget import Unlimited


@pytest.fixture(scope="module")
def job(make_job):
    text = "1x4:h100-sxm+1x4:a100-sxm-80gb"
    cluster = parse_cluster(text).model_copy(
        update={"between_groups": BetweenGroups(gb_per_s=3.125)}
    )
    return make_job("small-dense", text).model_copy(update={"cluster": cluster})


def searched(job, rules, budget):
    combinations = [(context_of(job, machine_for(job)), rules)]
    return HeterogeneousSearch(combinations, 0.05, np.inf, budget)


@pytest.fixture(scope="module")
def plan(job):
    return search(job, SearchOptions(only_answer=True, top=3))


@pytest.fixture(scope="module")
def found(job):
    rules = [parse_choice("vpp=1", excluded=False).rule(), *rules_of_job(job)]
    return searched(job, rules, Unlimited()).run(3)


def test_a_model_of_fewer_layers_than_ranks_is_planned(job):
    few = job.model.model_copy(update={"num_hidden_layers": 3})
    plan = search(job.model_copy(update={"model": few}), SearchOptions(only_answer=True, top=1))
    assert plan.best.layout.pp <= 3
    assert sum(one.layers for one in plan.best.layout.stages or ()) in (0, 3)
    assert plan.best.estimate.step_time_s >= plan.certificate.lower_bound_s * (1 - 1e-9)


def every_split(job):
    """All splits over both groups, in both orders, of two pipeline ranks."""
    for layers in range(job.model.num_hidden_layers + 1):
        for order in ((0, 1), (1, 0)):
            counts = (layers, job.model.num_hidden_layers - layers)
            pairs = zip(counts, order, strict=True)
            yield tuple(StageSpec(layers=count, group=group) for count, group in pairs)


def test_no_split_of_two_ranks_is_faster_than_the_bound(job, found):
    degrees = ({"dp": 4}, {"tp": 2, "dp": 2, "sequence_parallel": True}, {"cp": 2, "dp": 2})
    layouts = [
        Layout(**some, pp=2, micro_batch_size=size, stages=stages)
        for some in degrees
        for size in (1, 2, 4)
        for stages in every_split(job)
    ]
    table = LayoutTable.of(layouts)
    seconds = step_seconds(context_of(job, machine_for(job)).with_table(table))
    assert found.lower_bound_s <= seconds.min() * (1 + 1e-9)


def test_the_search_is_no_worse_than_even_stages_in_groups(job, plan):
    stages = (StageSpec(layers=3, group=0), StageSpec(layers=3, group=1))
    even = estimate(job, Layout(dp=4, pp=2, micro_batch_size=2, stages=stages))
    assert plan.best.estimate.step_time_s <= even.step_time_s


def test_a_search_without_time_runs_one_schedule_and_keeps_a_bound(job, found):
    rules = [parse_choice("vpp=1", excluded=False).rule(), *rules_of_job(job)]
    late = searched(job, rules, Steps(0)).run(3)
    assert (late.num_simulated, len(late.layouts), late.complete) == (1, 1, False)
    assert 0 < late.lower_bound_s <= found.lower_bound_s * (1 + 1e-9)


def test_even_stages_in_groups_are_tried_where_stages_are_held_even(job):
    held = (parse_choice("stages=even", excluded=False), parse_choice("vpp=1", excluded=False))
    rules = [*(choice.rule() for choice in held), *rules_of_job(job)]
    found = searched(job, rules, Steps(0)).run(3)
    assert found.layouts, "the first layouts tried are even ones"
    for _, table in found.layouts:
        counts = {stage.layers for stage in table.stages[0]}
        assert max(counts) - min(counts) <= 1


def test_the_plan_is_worth_its_estimate(plan):
    again = estimate(plan.job, plan.best.layout, memory_margin=plan.memory_margin)
    assert again == plan.best.estimate
    assert again.memory.fits
    proof = plan.certificate
    assert proof.lower_bound_s <= again.step_time_s
    assert proof.optimal == (proof.lower_bound_s >= again.step_time_s)


def test_naming_the_groups_in_another_order_finds_the_same_step(job, plan):
    groups = job.cluster.groups[::-1]
    cluster = job.cluster.model_copy(update={"groups": groups})
    other = search(
        job.model_copy(update={"cluster": cluster}), SearchOptions(only_answer=True, top=3)
    )
    assert other.best.estimate.step_time_s == pytest.approx(
        plan.best.estimate.step_time_s, rel=1e-3
    )


def test_even_stages_can_be_asked_for(job):
    texts = ("stages=even", "vpp=1", "pp=2", "cp=1")
    held = tuple(parse_choice(text, excluded=False) for text in texts)
    plan = search(job, SearchOptions(only_answer=True, top=1, fix=held))
    layers = [stage.layers for stage in plan.best.layout.stages or ()]
    assert np.ptp(layers or [0]) <= 1


def test_a_layout_that_runs_is_never_below_the_bound_of_a_search_cut_short(job, found):
    rules = [parse_choice("vpp=1", excluded=False).rule(), *rules_of_job(job)]
    bounds = []
    for steps in (1, 3, 6):
        cut = searched(job, rules, Steps(steps)).run(3)
        assert cut.lower_bound_s <= found.layouts[0][0] * (1 + 1e-9)
        assert cut.layouts[0][0] >= found.lower_bound_s * (1 - 1e-9)
        bounds.append(cut.lower_bound_s)
    assert bounds == sorted(bounds)


@pytest.mark.parametrize("runtime", ["nanotron", "megatron-deepspeed"])
def test_unlike_groups_offer_no_recomputation_that_the_runtime_lacks(job, runtime):
    choice = parse_choice("recompute=selective", excluded=False)
    wanted = job.model_copy(update={"runtime": runtime})
    answer = search(wanted, SearchOptions(only_answer=True, top=1, fix=(choice,)))
    assert isinstance(answer, Infeasible)


def test_groups_that_no_layout_fills_have_no_stages():
    """Of one sequence of one token nothing can be cut, whatever the pipeline."""
    done = run_plan(
        *("search", "--model", "qwen3-30b-a3b", "--cluster", "1x4:h100-sxm+1x4:a100-sxm-80gb"),
        *("--global-batch-size", "1", "--seq-length", "1", "--time-limit", "1"),
    )
    assert done.code in (0, 2)

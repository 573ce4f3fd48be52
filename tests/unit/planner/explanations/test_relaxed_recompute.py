"""What the same recomputation on every stage costs, as a plan is explained."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.budgets import Steps
from tests.fractions import every_fraction
from trainplan.cli.blocks.shown import show
from trainplan.cli.documents.explain import ExplainDocument
from trainplan.cli.pages.explain import explain_page
from trainplan.cli.words import seconds_like
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.runtimes.executes import EQUAL_RECOMPUTE
from trainplan.planner.cases.case import Case
from trainplan.planner.explanations.explanation import explain
from trainplan.planner.explanations.relaxed_recompute import RelaxedRule, recompute_rule
from trainplan.planner.plan.plan import Plan
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import Space, parse_choice, rules_of_job
from trainplan.planner.space.choices import broken_rules
from trainplan.planner.space.grid import RuleFilter, nodes, skeletons
from trainplan.planner.stages.bounds.recompute import EvenLayouts, stages_with
from trainplan.planner.stages.problem.of_layouts import stage_problems
from trainplan.planner.stages.solve.batch import simulate_stages
from trainplan.planner.stages.solve.recompute import by_stage
from trainplan.planner.work.budget import Unlimited

pytestmark = pytest.mark.usefixtures("quarters")

EVEN = parse_choice("stages=even", excluded=False)
PIPELINE = parse_choice("pp=2", excluded=False)
TIGHT = 0.957
"""Of each GPU's memory stays free: so little is left that some layers have to be recomputed."""


@pytest.fixture(scope="module")
def job(make_job):
    job = make_job("small-dense", "1x2:h100-sxm", 4, 8192)
    model = job.model.model_copy(update={"num_hidden_layers": 4})
    return job.model_copy(update={"model": model})


@pytest.fixture(scope="module")
def tight(job):
    """A plan with even stages that recomputes, and what that costs."""
    return priced(job, TIGHT, EVEN)


def priced(job, margin, *fixed):
    options = SearchOptions(memory_margin=margin, fix=(PIPELINE, *fixed), slack=0.0)
    plan = search(job, options)
    assert isinstance(plan, Plan)
    case, best = Case(job, options), plan.best
    return best, recompute_rule(case, best.layout, best.estimate.step_time_s, Unlimited())


def every_choice(job, margin):
    """Step times of all layouts with even stages whose recomputation fits."""
    machine, traits = machine_of(job.cluster, job.training.precision), traits_of(job)
    space, rules = Space(context_for(job)), rules_of_job(job)
    rule_filter = RuleFilter(job, rules)
    table = skeletons(space, rule_filter, nodes(space, rule_filter).table).table
    table = by_stage(table.take(table.pp > 1))
    for fraction in every_fraction(traits):
        some = table.replaced(offload_optimizer=np.full(len(table), fraction))
        for rule in rules:
            some = some.take(~rule.broken(job, some))
        for row in stage_problems(
            Candidates(job, machine, traits, some), [machine.memory_bytes * (1 - margin)]
        ):
            layers = EvenLayouts(job, machine, traits, np.inf).even(*row.shape[:2])
            numbers = product(*(range(held + 1) for held in layers.tolist()))
            choices = [stages_with(layers, np.array(again)) for again in numbers]
            simulated = simulate_stages(row, choices)
            yield from simulated.step_time_s[simulated.fits].tolist()


@pytest.mark.parametrize("margin", [0.94, 0.951, TIGHT])
def test_the_price_is_what_all_layouts_say(job, tight, margin):
    best, rule = tight if margin == TIGHT else priced(job, margin, EVEN)
    plan_s = best.estimate.step_time_s
    assert rule.same_split.step_time_s == pytest.approx(
        min(plan_s, *every_choice(job, margin)), rel=1e-9
    )
    assert rule.same_split.proved
    assert rule.any_split is None


def test_some_machine_pays_for_the_rule_and_the_layout_without_it_is_priced_as_said(job, tight):
    best, rule = tight
    found = rule.same_split
    assert found.cost_fraction > 0.001
    broken = broken_rules(job, LayoutTable.of([found.layout]))[0]
    assert EQUAL_RECOMPUTE in [rule.name for rule in broken]
    with pytest.raises(SpecError, match=EQUAL_RECOMPUTE):
        estimate(job, found.layout)
    assert len({stage.recompute_num_layers for stage in found.layout.stages}) > 1
    assert found.step_time_s < best.estimate.step_time_s


def test_where_memory_is_plenty_the_rule_costs_nothing(job):
    _, rule = priced(job, 0.05)
    assert rule.same_split.proved
    assert rule.same_split.cost_fraction == 0
    assert rule.same_split.layout is None


def test_nothing_is_said_where_no_time_is_left(job, tight):
    best, _ = tight
    question = Case(job, SearchOptions(fix=(PIPELINE,))), best.layout, best.estimate.step_time_s
    assert recompute_rule(*question, Steps(0)) is None


def test_a_free_split_never_makes_the_price_smaller(job):
    best, rule = priced(job, TIGHT)
    assert rule.any_split is None or rule.any_split.step_time_s < rule.same_split.step_time_s
    assert rule.same_split.lower_bound_s <= best.estimate.step_time_s


def test_an_open_proof_is_a_range():
    found = RelaxedRule(plan_step_time_s=11.0, layout=None, step_time_s=11.0, lower_bound_s=10.0)
    assert not found.proved
    assert found.cost_fraction == 0
    assert found.most_cost_fraction == pytest.approx(0.1)
    unknown = replace(found, lower_bound_s=0.0)
    assert unknown.most_cost_fraction == np.inf
    assert not unknown.proved


def test_the_page_and_the_document_say_the_same(job, tight, capsys, only_changes):
    options = SearchOptions(memory_margin=TIGHT, fix=(PIPELINE, EVEN))
    only_changes()
    found = explain(Case(job, options), tight[0].layout, (), Unlimited())
    same = found.recompute_rule.same_split
    document = ExplainDocument.of(found).json()["recompute_rule"]["same_split"]
    assert document["cost_fraction"] == same.cost_fraction
    assert document["proved"]
    show(*explain_page(found))
    page = capsys.readouterr().out
    assert "the same recomputation on every" in page
    assert seconds_like(same.step_time_s, same.plan_step_time_s) in page

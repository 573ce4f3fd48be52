"""What is told of the measurements behind an answer, beside its proof and apart from it."""

import pytest

from tests.budgets import Steps
from tests.unit.planner.evidence.test_evidence import JOB, LAYOUT, run
from trainplan.cli.pages.parts.evidence import (
    MOST_LISTED,
    evidence_lines,
    inside_lines,
    plan_evidence_lines,
)
from trainplan.cli.words import layout_line, percent
from trainplan.costmodel.calibration.machine import NOTHING
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.evidence import evidence_of, is_inside
from trainplan.planner.evidence.envelope import Measurements
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.target import Trusted
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.trust import best_inside
from trainplan.planner.work.budget import Unlimited


@pytest.fixture(scope="module")
def plan(make_job):
    """Its fastest layout is ZeRO-2, which no scored run on Megatron Core is."""
    return search(make_job("llama3-8b", "2x8:h100-sxm", 64, 4096))


def with_trusted(plan, **values):
    trusted = Trusted(rules=("--trusted tp <= 8",), **values)
    certificate = plan.certificate.model_copy(update={"trusted": trusted})
    return list(plan_evidence_lines(plan.model_copy(update={"certificate": certificate})))


def test_the_nearest_run_is_told_with_its_layout_and_all_with_their_errors():
    known = Measurements((run("a", error=0.031), run("b", error=-0.2, tp=8)))
    near, where = evidence_lines(evidence_of(JOB, LAYOUT, known))
    assert near == (
        "Nearest of 2 runs: some-model on 32 h100-sxm, tp 2 pp 4 dp 4 mbs 1 "
        "(estimate +3.1 %, distance 0.0); some-model on 32 h100-sxm (estimate -20.0 %, "
        "distance 2.0)."
    )
    assert where == "Inside what was measured: each axis, for such a runtime, GPU and model."


def test_an_answer_beyond_all_runs_is_warned_of_by_axis():
    known = Measurements((run(vpp=12),))
    layout = Layout(tp=2, pp=4, vpp=20, dp=4, schedule="interleaved")
    assert list(evidence_lines(evidence_of(JOB, layout, known)))[1] == (
        "Beyond what was measured: no scored run has vpp > 12 (here 20); no scored run has "
        "pp * vpp > 48 (here 80); no scored run has schedule interleaved."
    )


def test_of_many_axes_a_few_are_told_and_the_others_counted():
    layout = Layout(tp=4, pp=8, vpp=2, cp=1, dp=1, micro_batch_size=4, schedule="interleaved")
    found = evidence_of(JOB, layout, Measurements((run(),)))
    assert len(found.beyond) == MOST_LISTED + 2
    line = list(evidence_lines(found))[1]
    assert line.count("no scored run") == MOST_LISTED
    assert line.endswith("; 2 more axes.")


def gains(cost):
    return f"{percent(cost)} slower; the answer's gain of {percent(1 - 1 / (1 + cost))} is"


def test_the_best_layout_inside_is_named_with_both_gains_where_the_answer_is_beyond(plan):
    found = plan.certificate.inside
    assert not plan.evidence.inside
    assert is_inside(plan.job, found.layout)
    (line,) = inside_lines(plan)
    assert line.startswith("Best inside what was measured: ")
    assert (layout_line(found.layout, plan.job.model) in line) == (found.rank is None)
    cost = found.value / plan.best.estimate.step_time_s - 1
    assert cost == pytest.approx(found.cost_fraction)
    assert gains(cost) in line


def test_a_row_of_the_table_is_named_by_its_rank_where_no_search_finds_better(plan):
    row = plan.candidates[3].model_copy(update={"inside_measured": True})
    outside = [one.model_copy(update={"inside_measured": False}) for one in plan.candidates[:3]]
    plan = plan.model_copy(update={"candidates": (*outside, row), "best": outside[0]})
    for budget, ranks in ((Steps(0), {row.rank}), (Unlimited(), {None, row.rank})):
        context = SearchContext.of(plan.job, SearchOptions(), NOTHING, budget)
        found = best_inside(context, plan)
        assert found.rank in ranks
        assert found.value <= row.estimate.step_time_s
        certificate = plan.certificate.model_copy(update={"inside": found})
        (line,) = inside_lines(plan.model_copy(update={"certificate": certificate}))
        assert (f"measured: row {row.rank}: " in line) == (found.rank is not None)


def test_no_layout_is_named_where_none_of_the_job_is_inside_or_the_answer_is(make_job):
    plan = search(make_job("small-dense", "1x8:mi300x"))
    assert plan.certificate.inside is None
    assert not list(inside_lines(plan))
    job = make_job("small-dense", "1x8:h100-sxm")
    plan = search(job, SearchOptions(trusted=True))
    assert best_inside(SearchContext.of(job, SearchOptions(), NOTHING, Unlimited()), plan) is None


def test_the_price_of_trust_is_told_with_where_it_comes_from(plan):
    stated = with_trusted(plan, value_without=2.0, lower_bound_without=2.0, cost_fraction=0.012)
    assert stated[-1] == "--trusted costs 1.2 %: a second search without it gives 2.00 s (proved)."
    stated = with_trusted(plan, value_without=2.0, lower_bound_without=1.9, cost_fraction=0.012)
    assert stated[-1].startswith("--trusted costs 1.2 % as far as both were searched: a second")
    stated = with_trusted(plan, value_without=2.0, lower_bound_without=1.9, cost_fraction=0.0)
    assert stated[-1] == (
        "--trusted costs nothing: a second search without it gives no better (not proved: it may "
        "go down to 1.90 s)."
    )
    stated = with_trusted(plan, value_without=2.0, lower_bound_without=None, cost_fraction=0.0)
    assert stated[-1] == (
        "--trusted: its price is not known, no time was left to search without it."
    )

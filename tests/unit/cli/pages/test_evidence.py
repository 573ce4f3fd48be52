"""What is told of the measurements behind an answer, beside its proof and apart from it."""

import pytest

from tests.unit.planner.evidence.test_evidence import JOB, LAYOUT, run
from trainplan.cli.pages.parts.evidence import (
    MOST_LISTED,
    evidence_lines,
    not_taken_lines,
    plan_evidence_lines,
)
from trainplan.cli.words import layout_line
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.evidence import evidence_of
from trainplan.planner.evidence.envelope import Measurements
from trainplan.planner.plan.target import NotTaken, Trusted
from trainplan.planner.questions.best_plan import search


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
        "Nearest of 2 runs: some-model on 32 h100-sxm, bf16, batch 64 x 2,048, tp 2 pp 4 dp 4 "
        "mbs 1 (estimate +3.1 %, distance 0.0); some-model on 32 h100-sxm, bf16, batch 64 x 2,048 "
        "(estimate -20.0 %, distance 2.0)."
    )
    assert where == "In distribution: each axis, for such a runtime, GPU and model."


def test_an_answer_beyond_all_runs_is_warned_of_by_axis():
    known = Measurements((run(vpp=12),))
    layout = Layout(tp=2, pp=4, vpp=20, dp=4, schedule="interleaved")
    assert list(evidence_lines(evidence_of(JOB, layout, known)))[1] == (
        "Out of distribution: no scored run has vpp > 12 (here 20); no scored run has "
        "pp * vpp > 48 (here 80); no scored run has schedule interleaved."
    )


def test_of_many_axes_a_few_are_told_and_the_others_counted():
    layout = Layout(tp=4, pp=8, vpp=2, cp=1, dp=1, micro_batch_size=4, schedule="interleaved")
    found = evidence_of(JOB, layout, Measurements((run(),)))
    assert len(found.beyond) == MOST_LISTED + 2
    line = list(evidence_lines(found))[1]
    assert line.count("no scored run") == MOST_LISTED
    assert line.endswith("; 2 more axes.")


def test_a_better_layout_that_no_published_run_is_like_is_named_second_with_its_gain(plan):
    assert not list(not_taken_lines(plan))
    beyond = tuple(f"no scored run has x > {i}" for i in range(MOST_LISTED + 2))
    best = NotTaken(layout=LAYOUT, settings=("overlap_moe_a2a=true",), beyond=beyond)
    trusted = Trusted(
        rules=("published tp <= 8",),
        value_without=2.0,
        lower_bound_without=2.0,
        cost_fraction=0.25,
        not_taken=best,
    )
    certificate = plan.certificate.model_copy(update={"trusted": trusted})
    other = plan.model_copy(update={"certificate": certificate})
    (line,) = not_taken_lines(other)
    named = layout_line(LAYOUT, plan.job.model)
    assert line.startswith(
        "Priced 20.0 % less, but not the answer, as no published run is like it: "
        f"{named} (overlap_moe_a2a=true) on 32 GPUs: 2.00 s, extrapolated: no scored run has x"
    )
    assert line.endswith("; and 2 more. `--slack 0` takes it.")
    assert not any(text.startswith("--trusted") for text in plan_evidence_lines(other))
    slower = trusted.model_copy(update={"cost_fraction": -0.001})
    certificate = plan.certificate.model_copy(update={"trusted": slower})
    assert not list(not_taken_lines(plan.model_copy(update={"certificate": certificate})))


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

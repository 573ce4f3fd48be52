"""Why a layout is not the answer."""

import json
import re
from functools import partial

import pytest

from tests.budgets import Steps
from trainplan.cli.pages.parts.differences import remedies_part
from trainplan.costmodel.axes import RULES
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES, executed
from trainplan.planner.cases.case import Case
from trainplan.planner.comparisons.verdict import why_not
from trainplan.planner.documents.document import plan_json
from trainplan.planner.documents.written_plan import written
from trainplan.planner.plan import Plan
from trainplan.planner.questions import check, estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited

Plain = partial(SearchOptions, search_options="none")
"""Settings are searched by other tests."""


@pytest.fixture(scope="module")
def job(make_job):
    return make_job("llama3-8b", "1x8:h100-sxm", 32, 4096)


def plan_of(job, options):
    return written(json.dumps(plan_json(search(job, options))))


@pytest.fixture(scope="module")
def plan(job):
    return plan_of(job, Plain(top=5, memory_margin=0.05, slack=0.0))


@pytest.fixture(scope="module")
def ask(job, plan):
    def wanted(layout, against=plan):
        return why_not(Case(job, against.options), against, layout, Unlimited())

    return wanted


def test_a_broken_rule_is_named_with_its_source(job, ask):
    layout = Layout(tp=3, dp=2)
    found = ask(layout)
    assert found.verdict == "refused"
    assert found.other is None
    assert found.broken[0].name == "uses_all_gpus"
    assert "6, the cluster has 8 GPUs" in found.broken[0].says
    layout = Layout(dp=8, micro_batch_size=3)
    names = [rule.name for rule in ask(layout).broken]
    assert "micro_batch_divides_batch" in names
    assert all(rule.source for rule in ask(layout).broken)


@pytest.mark.parametrize(("budget", "searched"), [(Unlimited(), True), (Steps(0), False)])
def test_no_remedy_is_a_verdict_of_a_whole_search_only(job, plan, budget, searched):
    found = why_not(Case(job, plan.options), plan, Layout(tp=5, dp=2, pp=5), budget)
    assert (found.verdict, found.remedies, found.remedies_searched) == ("refused", (), searched)
    says = remedies_part((), found.layout, found.best, searched=searched)
    assert says.startswith("Nothing that keeps its tp" if searched else "Whether anything that")


def test_a_layout_too_large_says_which_rank_is_over_by_how_much(job, ask, plan):
    layout = Layout(dp=8, zero_stage=0)
    found = ask(layout)
    assert found.verdict == "too large"
    usable = (1 - plan.options.memory_margin) * found.other.estimate.memory.capacity_bytes
    fullest = max(r.total_bytes for r in found.other.estimate.memory.pipeline_ranks)
    assert found.overflows[0].over_bytes == pytest.approx(fullest - usable)
    assert found.probability_faster is None


@pytest.mark.parametrize("layout", [Layout(dp=8, zero_stage=0), Layout(dp=8, micro_batch_size=3)])
def test_every_remedy_is_legal_and_fits(job, ask, layout):
    remedies = ask(layout).remedies
    assert remedies
    for remedy in remedies:
        check(job, remedy.candidate.layout)
        assert remedy.candidate.estimate.memory.fits
        assert remedy.changes
    kept = [remedy for remedy in remedies if not remedy.option]
    assert kept == list(remedies[: len(kept)])
    steps = [remedy.candidate.estimate.step_time_s for remedy in kept]
    assert steps == sorted(steps)


def test_the_terms_sum_to_the_loss_and_the_largest_comes_first(job, ask, plan):
    layout = Layout(tp=8, sequence_parallel=True)
    found = ask(layout)
    assert found.verdict in ("slower", "near tie")
    lost = estimate(job, layout).step_time_s - estimate(job, plan.layout).step_time_s
    assert found.lost_s == pytest.approx(lost, rel=1e-12)
    assert sum(t.difference_s for t in found.terms) == pytest.approx(lost, rel=1e-9)
    sizes = [abs(term.difference_s) for term in found.terms]
    assert sizes == sorted(sizes, reverse=True)


def test_the_plan_s_own_layout_is_the_plan_s_own(ask, plan):
    found = ask(plan.layout)
    assert found.verdict == "same"
    assert found.lost_s == 0
    assert found.listed_rank == 1


def test_a_listed_alternative_knows_its_place(ask, plan):
    other = plan.candidates[2]
    assert ask(other).listed_rank == 3


def test_a_faster_layout_names_the_choice_that_kept_it_out(job, ask, plan):
    held = plan_of(job, Plain(top=1, fix=(parse_choice("tp=8", excluded=False),)))
    assert [choice.text for choice in held.options.fix] == ["tp=8"]
    found = ask(plan.layout, held)
    assert found.verdict == "faster"
    assert found.lost_s < 0
    assert "the plan was made with --fix tp=8" in found.reasons


def test_shards_in_groups_under_zero_1_are_known_to_be_untried(job, ask, plan):
    fix = (parse_choice("tp=8", excluded=False),)
    held = plan_of(job, Plain(top=1, fix=fix, memory_margin=0.05))
    found = ask(plan.layout.model_copy(update={"dp_replicate": 2}), held)
    assert found.verdict == "faster"
    assert any("--fix dp_replicate=free" in reason for reason in found.reasons)


def test_a_plan_of_other_numbers_says_so(job, ask, plan):
    document = plan_json(search(job, Plain(top=1, fix=(parse_choice("tp=8", excluded=False),))))
    text = json.loads(json.dumps(document))
    text["best"]["estimate"]["step_time_s"] *= 2
    reasons = ask(plan.layout, written(json.dumps(text))).reasons
    assert any("other numbers" in reason for reason in reasons)


def test_a_layout_that_only_the_margin_refuses_is_told_apart(job, plan):
    used = estimate(job, plan.layout).memory
    margin = 1 - (used.peak_reserved_bytes - 1) / used.capacity_bytes
    options = plan.options.model_copy(update={"memory_margin": margin})
    found = why_not(Case(job, options), plan, plan.layout, Unlimited())
    assert found.verdict == "too large"
    assert found.fits_without_margin
    assert found.overflows[0].over_bytes == pytest.approx(1, abs=0.1)


def test_a_plan_made_for_less_memory_says_that_speed_was_not_asked(job, ask, plan):
    flat = (parse_choice("pp=1", excluded=False),)
    memory_minimal = plan_of(job, Plain(top=1, objective="memory", slack=0.5, fix=flat))
    assert memory_minimal.objective == "memory"
    assert memory_minimal.options.objective == "time"
    assert memory_minimal.layout != plan.layout
    found = ask(plan.layout, memory_minimal)
    assert found.verdict == "faster"
    assert any("--objective memory" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    "texts",
    [("tp=2",), ("tp=8",), ("pp=2", "vpp=4"), ("cp=4",), ("zero_stage=2",), ("recompute=full",)],
    ids=",".join,
)
def test_fields_that_are_not_named_are_free(job, plan, texts):
    choices = tuple(parse_choice(text, excluded=False) for text in texts)
    case = Case(job, plan.options)
    found = why_not(case, plan, Layout(dp=8), Unlimited(), choices)
    assert found.fields == texts
    assert found.verdict not in ("refused", "too large")
    options = {"only_answer": True, "tries_uneven": 0, "near": plan.layout}
    alone = Plain(fix=choices, memory_margin=0.05, **options)
    best = search(job, alone).best
    assert found.other.estimate.step_time_s == pytest.approx(best.estimate.step_time_s)
    assert found.layout == best.layout


@pytest.mark.parametrize("level", ["none", "safe"])
def test_a_layout_may_have_the_settings_that_the_plan_was_searched_with(make_job, level):
    """gpt2 waits for launches: with graphs that the plan does not have, tp=4 is a near tie."""
    job = make_job("gpt2", "1x8:h100-sxm", 32, 1024)
    even = (parse_choice("stages=even", excluded=False),)
    made = search(job, SearchOptions(search_options=level, fix=even, only_answer=True))
    assert isinstance(made, Plan)
    plan = written(json.dumps(plan_json(made)))
    choices = (parse_choice("tp=4", excluded=False),)
    found = why_not(Case(plan.job, plan.options), plan, Layout(tp=4, dp=2), Unlimited(), choices)
    assert (plan.varied, found.verdict) == (level, "slower")
    graphs = found.other.job.options.cuda_graph
    assert (graphs is None) is (level == "none")


def test_fields_that_no_legal_layout_has_are_refused_by_their_rule(job, plan):
    choices = tuple(
        parse_choice(text, excluded=False) for text in ("tp=1", "sequence_parallel=true")
    )
    filled = Layout(dp=8, sequence_parallel=True)
    found = why_not(Case(job, plan.options), plan, filled, Unlimited(), choices)
    assert found.verdict == "refused"
    assert "sequence" in found.broken[0].says


def test_a_value_that_no_search_tries_is_priced_in_a_usual_layout(job, plan):
    three = (parse_choice("micro_batch_size=3", excluded=False),)
    filled = Layout(dp=8, micro_batch_size=3)
    found = why_not(Case(job, plan.options), plan, filled, Unlimited(), three)
    assert (found.fields, found.layout, found.verdict) == ((), filled, "refused")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_sources_of_rules_are_words_that_a_reader_can_follow(runtime):
    traits = RUNTIMES[runtime]
    written = EXPORTERS[runtime].rules if runtime in EXPORTERS else ()
    for rule in (*RULES, *traits.rules, *executed(traits), *written):
        assert not re.search(r"(^|[ (;])[A-Z]{1,2}(:\d|, )", rule.source), rule
        assert not rule.source.startswith(("core/", "megatron/", "training/")), rule
        assert not re.search(r"\b[A-Z]{1,2}:\d", rule.says), rule


def test_a_faster_layout_within_the_slack_is_known_to_be_less_simple(make_job):
    job = make_job("llama3-70b", "8x8:h100-sxm", 128, 8192)
    options = Plain(top=3, fix=(parse_choice("stages=even", excluded=False),))
    found = search(job, options)
    against = written(json.dumps(plan_json(found)))
    fastest = found.fastest.layout
    assert fastest != found.best.layout
    answered = why_not(Case(job, against.options), against, fastest, Unlimited())
    assert answered.verdict == "faster"
    assert answered.reasons[0].startswith("the plan is the simplest layout within the slack")

"""`--trusted` keeps a search inside what was measured, and says what that costs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.budgets import Steps
from tests.grids import number
from tests.unit.planner.evidence.test_evidence import JOB, run
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration.machine import NOTHING, machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.step import explicit
from trainplan.planner.cases.case import Case
from trainplan.planner.comparisons.verdict import why_not
from trainplan.planner.documents.document import plan_json
from trainplan.planner.documents.written_plan import written
from trainplan.planner.evidence.axes import Rows
from trainplan.planner.evidence.envelope import Measurements, measurements
from trainplan.planner.evidence.evidence import evidence_of, is_inside, unpublished
from trainplan.planner.evidence.shape import Setup, shape_of
from trainplan.planner.evidence.trusted import OPTION, published_rules, trusted_rules, unmeasured
from trainplan.planner.goals.answered import answer
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.questions import trust
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.case_search import kept_layout
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.questions.trust import (
    CLAIM,
    or_published,
    searched_published,
    time_for_answer,
)
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited

FEW = Measurements(
    (
        run(vpp=2, pp=2, schedule="interleaved", recompute=("core_attn",)),
        run(dp=8, cp=2, micro_batch_size=2, zero_stage=1),
        run(ep=32, etp=2, tp=8, cp=4, dp=32, micro_batch_size=4),
        run(runtime="torchtitan", tp=16, zero_stage=3),
    )
)
"""On Megatron: no whole layers recomputed, no other module, no ZeRO-3, nothing on the host."""


@pytest.fixture(scope="module")
def small_gpus(make_job):
    """A job whose fastest layout keeps half of the optimizer on the host, as no scored run does."""
    job = make_job("llama2-7b", "1x8:a10g", 32)
    half = job.model.model_copy(update={"num_hidden_layers": 16})
    group = job.cluster.groups[0].model_copy(update={"memory_gib": 12.0})
    cluster = job.cluster.model_copy(update={"groups": (group,)})
    return job.model_copy(update={"model": half, "cluster": cluster})


HELD = {"search_options": "none", "fix": (parse_choice("stages=even", excluded=False),)}
"""Settings and uneven stages are other tests' business."""


@pytest.fixture(scope="module")
def free(small_gpus):
    return search(small_gpus, SearchOptions(**HELD, slack=0.0))


@pytest.fixture(scope="module")
def trusted(small_gpus):
    return search(small_gpus, SearchOptions(**HELD, trusted=True))


@pytest.mark.parametrize("known", [FEW, measurements()])
@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
@pytest.mark.parametrize("cluster", ["4x8:h100-sxm", "8x4:gb200", "4x8:a100-sxm-80gb"])
def test_a_rule_is_broken_exactly_where_the_text_is_beyond(
    make_job, legal_table, model, cluster, known
):
    """One table of limits: the flag, the marks of rows and the sentences ask the same of it."""
    job = make_job(model, cluster, 64)
    on, table = Setup.of(job), legal_table(job, 300, seed=3)
    broken = np.any([rule.broken(job, table) for rule in trusted_rules(job, known)], axis=0)
    for i in range(0, len(table), number(8, by_night=3)):
        row = Rows(on, LayoutTable.of([table.row(i)]))
        assert broken[i] == bool(known.beyond(row)) == (not known.inside(row)[0])
    assert broken.tolist() == (~known.inside(Rows(on, table))).tolist()
    stated = unmeasured(job, known)
    assert broken.all() if stated else 0 < broken.sum() < len(table)


@pytest.mark.parametrize("model", ["small-dense", "qwen3-30b-a3b"])
@pytest.mark.parametrize("cluster", ["4x8:h100-sxm", "4x8:mi300x"])
def test_a_layout_like_published_ones_keeps_what_holds_for_all_gpus(
    make_job, legal_table, model, cluster
):
    """Rules and sentences agree; a GPU that no run had keeps no layout from it."""
    job = make_job(model, cluster, 64)
    on, table = Setup.of(job), legal_table(job, 200, seed=4)
    broken = np.any([rule.broken(job, table) for rule in published_rules(job)], axis=0)
    for i in range(len(table)):
        beyond = unpublished(on, table.row(i))
        assert broken[i] == bool(beyond)
        assert {one.scope for one in beyond} <= {"any", "kind"}
    assert 0 < broken.sum() < len(table)


def test_words_of_a_layout_are_those_of_its_shape(make_job, legal_table):
    """A run is described by its shape, a candidate by its columns: alike in every axis."""
    for model in ("small-dense", "small-moe"):
        job = make_job(model, "4x8:h100-sxm", 64)
        on, table = Setup.of(job), legal_table(job, 60, seed=5)
        for i in range(len(table)):
            shape = shape_of(on, table.row(i))
            same = Measurements((replace(run(), shape=shape),))
            assert is_inside(job, table.row(i), same), shape


def test_a_rule_is_named_by_the_largest_value_measured_on_such_runtimes(make_job):
    job = make_job("small-dense", "4x8:h100-sxm", 64)
    names = {rule.name for rule in trusted_rules(job, FEW)}
    assert {"--trusted tp <= 8", "--trusted vpp <= 2", "--trusted dp <= 32"} <= names
    assert "--trusted offload <= 0" in names


def test_what_the_job_states_beyond_is_refused_before_the_search_all_in_one_sentence(make_job):
    job = make_job("small-dense", "1x8:mi250x", 32, 1 << 18).model_copy(
        update={"runtime": "nanotron"}
    )
    with pytest.raises(SpecError) as caught:
        search(job, SearchOptions(trusted=True))
    text = str(caught.value)
    for missing in (
        "no scored run has seq_length > 131,072 (here 262,144)",
        "no scored run is on nanotron",
        "no scored run is on cdna2 GPUs",
        "drop --trusted",
    ):
        assert missing in text


JOBS = [
    (model, cluster, runtime)
    for model in ("llama3-8b", "llama3-70b", "qwen3-30b-a3b", "qwen3-235b-a22b", "small-moe")
    for cluster, runtimes in {
        "2x8:h100-sxm": ("megatron-lm", "megatron-bridge", "torchtitan"),
        "16x4:gb200": ("megatron-bridge", "nemo"),
        "4x8:a100-sxm-80gb": ("megatron-lm", "llm-foundry-fsdp"),
    }.items()
    for runtime in runtimes
]


@pytest.mark.grid
@pytest.mark.parametrize(("model", "cluster", "runtime"), JOBS)
def test_trusted_answers_inside_or_names_what_is_missing(make_job, model, cluster, runtime):
    job = make_job(model, cluster, 128, 4096).model_copy(update={"runtime": runtime})
    try:
        found = search(job, SearchOptions(trusted=True), Steps(10))
    except SpecError as error:
        assert "no scored run" in str(error) or "the time limit struck" in str(error)
        return
    if isinstance(found, Infeasible):
        assert "drop --trusted" in found.changes or any(
            name.startswith(OPTION) for name in found.refused
        )
        return
    assert found.evidence.beyond == ()
    assert all(one.inside_measured for one in found.candidates)


ONE_COPY = ("pp=1", "tp=1", "cp=1", "micro_batch_size=1")


def test_settings_that_no_run_had_are_not_searched_and_hide_no_others(make_job):
    """Whole-step graphs are faster on Hopper, where no run had any: experts are planned without."""
    job = make_job("small-moe", "1x8:h100-sxm", 64, 4096).model_copy(
        update={"runtime": "megatron-bridge"}
    )
    flat = tuple(parse_choice(one, excluded=False) for one in ONE_COPY)
    free = search(job, SearchOptions(fix=flat, slack=0.0, only_answer=True))
    assert free.job.options.cuda_graph is not None
    found = search(job, SearchOptions(fix=flat, trusted=True))
    assert found.job.options.cuda_graph is None
    assert found.evidence.beyond == ()
    alone = search(job, SearchOptions(fix=flat, trusted=True, search_options="none"))
    assert found.certificate.objective.value <= alone.certificate.objective.value * (1 + 1e-9)


def test_the_answer_stays_inside_and_the_free_one_does_not(free, trusted):
    assert not free.evidence.inside
    assert free.best.layout.offload.optimizer > 0
    assert trusted.evidence.inside
    assert all(one.inside_measured for one in trusted.candidates)
    assert {one.inside_measured for one in free.candidates} == {True, False}


def test_the_price_is_the_step_of_a_search_without_it(free, trusted):
    price = trusted.certificate.trusted
    assert free.certificate.trusted is None
    assert price.value_without == free.best.estimate.step_time_s
    assert price.lower_bound_without == free.certificate.lower_bound_s
    more = trusted.best.estimate.step_time_s / free.best.estimate.step_time_s - 1
    assert price.cost_fraction == pytest.approx(more)
    assert price.cost_fraction > 0.05


def test_the_rules_are_named_in_the_certificate_and_counted_like_others(trusted):
    names = trusted.certificate.trusted.rules
    counted = [name for name in trusted.refused if name.startswith(OPTION)]
    assert counted
    assert set(counted) <= set(names)
    proof = trusted.certificate
    assert sum(trusted.refused.values()) + proof.bounded + proof.evaluated == proof.space_size


@pytest.mark.parametrize("cluster", ["1x8:h100-sxm", "2x4:a100-sxm-80gb"])
def test_no_layout_inside_is_faster_than_the_bound(make_job, legal_table, cluster):
    job = make_job("small-dense", cluster, 32)
    found = search(job, SearchOptions(**HELD, trusted=True))
    table = legal_table(job, 400, seed=8)
    broken = np.any([rule.broken(job, table) for rule in trusted_rules(job)], axis=0)
    rows = context_of(job, machine_for(job, NOTHING)).with_table(table.take(~broken))
    steps = [one.step_time_s for one in explicit(rows, memory_margin=0.05) if one.memory.fits]
    assert len(steps) > 10
    assert min(steps) >= found.certificate.lower_bound_s
    assert found.certificate.optimal


def test_trust_costs_nothing_where_the_fastest_lies_inside(make_job):
    job = make_job("small-dense", "2x8:h100-sxm", 64)
    found = search(job, SearchOptions(**HELD, trusted=True))
    free = search(job, SearchOptions(**HELD))
    assert found.best.layout == free.best.layout
    assert found.certificate.trusted.cost_fraction == 0


def test_a_third_of_a_time_limit_is_kept_for_the_price():
    class Minute(Unlimited):
        def seconds_left(self):
            return 60.0

    assert time_for_answer(SearchOptions(trusted=True), Minute()).seconds_left() == 40
    assert time_for_answer(SearchOptions(), Minute()).seconds_left() == 60
    alone = SearchOptions(trusted=True, only_answer=True)
    assert time_for_answer(alone, Minute()).seconds_left() == 60
    assert np.isinf(time_for_answer(SearchOptions(trusted=True), Unlimited()).seconds_left())


class Looks(Steps):
    """A time limit in looks at the clock."""

    def seconds_left(self):
        return max(0.0, float(self.steps))


@pytest.mark.parametrize("looks", [6, 15, 40])
def test_where_time_is_short_no_layout_like_published_ones_is_better(make_job, looks):
    """A part of a limit is kept for them, and the best of them is the answer where it is faster."""
    job = make_job("small-moe", "1x4:h100-sxm", 16)
    try:
        plan = search(job, SearchOptions(search_options="none"), Looks(looks))
    except SpecError as error:
        assert "the time limit struck before" in str(error)
        return
    target, trusted = plan.certificate.objective, plan.certificate.trusted
    assert target.lower_bound <= target.value
    assert plan.choices == ()
    assert trusted is None or trusted.value_without <= target.value


@pytest.mark.grid
@pytest.mark.parametrize(("model", "cluster", "runtime"), JOBS)
def test_what_no_published_run_is_like_comes_second(make_job, model, cluster, runtime):
    """The answer keeps the limits wherever any layout that was found does; both are named."""
    job = make_job(model, cluster, 128, 4096).model_copy(update={"runtime": runtime})
    try:
        plan = search(job, SearchOptions(whole_cluster=True), Looks(8))
    except SpecError as error:
        assert "the time limit struck" in str(error)
        return
    if isinstance(plan, Infeasible):
        return
    own, trusted = Setup.of(plan.job), plan.certificate.trusted
    if unpublished(own, plan.best.layout):
        assert trusted is None
        listed = [one for one in plan.candidates if not unpublished(own, one.layout)]
        slack = 1 + plan.certificate.objective.slack_fraction
        fastest = plan.fastest.estimate.step_time_s
        assert all(one.estimate.step_time_s > fastest * slack for one in listed)
    if trusted is not None:
        assert trusted.not_taken.beyond
        assert trusted.value_without <= plan.certificate.objective.value
        assert not any(name.startswith(OPTION) for name in trusted.rules)


def test_the_fastest_comes_first_where_no_slack_is_given(make_job):
    """Experts under ZeRO-3, which none of the runs with experts had, and no expert parallelism."""
    job = make_job("qwen3-30b-a3b", "2x8:h100-sxm", 64, 4096)
    flat = tuple(parse_choice(one, excluded=False) for one in ONE_COPY)
    held = SearchOptions(search_options="none", fix=flat)
    plan = search(job, held)
    free = search(job, held.model_copy(update={"slack": 0.0}))
    assert [one.axis for one in unpublished(Setup.of(job), free.best.layout)]
    assert free.certificate.trusted is None
    second = plan.certificate.trusted
    other = estimate(job, second.not_taken.layout).step_time_s
    assert other <= free.best.estimate.step_time_s * (1 + held.slack_fraction)
    assert second.value_without == free.certificate.objective.value
    assert not unpublished(Setup.of(job), plan.best.layout)
    assert plan.certificate.objective.value > second.value_without
    found = written(json.dumps(plan_json(plan)))
    assert found.options.published
    assert not found.options.trusted
    reasons = why_not(Case(job, SearchOptions()), found, free.best.layout, Unlimited()).reasons
    assert any(reason.startswith("the plan was made with published ") for reason in reasons)


def test_what_is_found_of_published_ones_is_the_answer_where_it_is_better(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 64)
    context = SearchContext.of(job, SearchOptions(), NOTHING, Unlimited())
    recomputed = SearchOptions(fix=(parse_choice("recompute=full", excluded=False),))
    slow = SearchContext.of(job, recomputed, NOTHING, Unlimited())
    reached, other = answer(slow), searched_published(context)
    found = or_published(reached, other)
    assert found.found.value == found.target.value == other.found.value < reached.found.value
    assert found.target.lower_bound <= found.found.value
    assert not found.context.options.published
    part = context.with_job(make_job("small-dense", "1x4:h100-sxm", 64))
    none = replace(reached.found, finalists=None, value=np.inf, lower_bound_s=np.inf)
    nothing = replace(reached, context=part, target=None, found=none)
    on_a_part = or_published(nothing, other)
    assert on_a_part.target.lower_bound == 0.0
    assert not on_a_part.target.tried_all
    untried = replace(
        reached, context=part, target=reached.target.model_copy(update={"tried_all": False})
    )
    assert or_published(untried, other).target.lower_bound == 0.0
    assert or_published(other, reached) is other
    assert or_published(reached, None) is reached


def test_without_time_the_price_holds_all_the_same(small_gpus, free):
    for steps in (3, 8, 20):
        found = search(small_gpus, SearchOptions(**HELD, trusted=True), Steps(steps))
        price = found.certificate.trusted
        assert price.value_without <= found.certificate.objective.value
        if price.lower_bound_without is not None:
            assert price.lower_bound_without <= free.best.estimate.step_time_s * (1 + 1e-9)


def test_where_nothing_inside_fits_to_drop_it_is_among_what_helps(make_job):
    job = make_job("llama3-8b", "1x1:h100-sxm", 16, 8192)
    answer = search(job, SearchOptions(**HELD, trusted=True))
    assert "drop --trusted" in answer.changes
    assert search(job, SearchOptions(**HELD, slack=0.0)).best.layout.offload.optimizer > 0


def test_a_written_plan_is_read_back_as_trusted(small_gpus, free, trusted):
    found = written(json.dumps(plan_json(trusted)))
    assert found.options.trusted
    assert trusted.choices == ("--fix stages=even", OPTION)
    assert not written(json.dumps(plan_json(free))).options.trusted
    case = Case(small_gpus, found.options)
    reasons = why_not(case, found, free.best.layout, Unlimited()).reasons
    assert "the plan was made with --trusted offload <= 0" in reasons
    assert kept_layout(case, free.best.layout) is None
    assert kept_layout(case, trusted.best.layout) is not None


def test_a_pipeline_of_measured_degrees_may_have_too_many_stages_in_all():
    layout = Layout(tp=2, pp=4, vpp=4, dp=4, schedule="interleaved")
    known = Measurements((run(tp=8, pp=8), run(tp=8, vpp=8, pp=1, dp=8, schedule="interleaved")))
    texts = [one.axis for one in evidence_of(JOB, layout, known).beyond]
    assert texts == ["pp * vpp"]
    assert not is_inside(JOB, layout, known)


def test_the_longest_measured_sequence_is_stopped_by_what_was_measured(make_job):
    """More tokens are better: what `--trusted` leaves of them is its price."""
    job = make_job("llama3-8b", "1x8:h100-sxm", 8, 4096)
    flat = tuple(
        parse_choice(one, excluded=False) for one in ("pp=1", "tp=1", "micro_batch_size=1")
    )
    held = SearchOptions(objective="context", trusted=True, search_options="none", fix=flat)
    target = (plan := search(job, held)).certificate.objective
    assert target.limit == "what was measured"
    price = plan.certificate.trusted
    assert price.value_without > target.value
    assert price.cost_fraction == pytest.approx(1 - target.value / price.value_without)


def test_limits_of_a_generation_are_those_of_runs_on_its_gpus(make_job):
    """Full graphs: with experts on Blackwell alone, and of Ada too few have published."""
    graph = {"options": {"cuda_graph": "full_iteration", "moe_dispatcher": "hybridep"}}

    def beyond(gpu, model="qwen3-30b-a3b", *, generation=True):
        job = make_job(model, f"1x8:{gpu}")
        job = job.model_copy(update={"runtime": "megatron-bridge"})
        job = type(job).model_validate(job.model_dump() | graph)
        layout = Layout(tp=1, dp=8, ep=8)
        return [one.axis for one in unpublished(Setup.of(job), layout, generation=generation)]

    assert beyond("h100-sxm") == ["settings"]
    assert beyond("b200", "small-moe") == []  # its attention is latent, of which there are few runs
    assert beyond("b200") == beyond("l4") == beyond("h100-sxm", generation=False) == []


@pytest.fixture
def on_hopper(make_job):
    """Experts, of which a graph of the whole step is by far the fastest, and no run has one."""
    job = make_job("qwen3-30b-a3b", "2x8:h100-sxm", 64, 4096)
    job = job.model_copy(update={"runtime": "megatron-bridge"})
    fixed = ("pp=1", "tp=1", "cp=1", "ep=16", "micro_batch_size=1", "zero_stage=1")
    return job, SearchOptions(fix=tuple(parse_choice(one, excluded=False) for one in fixed))


def test_a_claim_for_what_nobody_ran_on_such_gpus_comes_second(on_hopper):
    job, held = on_hopper
    plan, fastest = search(job, held), search(job, held.model_copy(update={"slack": 0.0}))
    second = plan.certificate.trusted
    assert fastest.certificate.trusted is None
    assert second.not_taken.settings[0] == "cuda_graph=full_iteration"
    assert "hopper" in second.not_taken.beyond[0]
    assert second.value_without == fastest.certificate.objective.value
    assert second.cost_fraction > CLAIM
    assert not unpublished(Setup.of(plan.job), plan.best.layout, generation=True)
    found = written(json.dumps(plan_json(plan)))
    assert found.options.published
    assert found.options.generation


def test_a_small_claim_stays_first(on_hopper, monkeypatch):
    monkeypatch.setattr(trust, "CLAIM", 9.0)
    plan = search(*on_hopper)
    assert plan.certificate.trusted is None
    assert unpublished(Setup.of(plan.job), plan.best.layout, generation=True)

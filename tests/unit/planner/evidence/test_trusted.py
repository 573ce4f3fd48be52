"""`--trusted` keeps a search inside what was measured, and says what that costs."""

import json

import numpy as np
import pytest

from tests.budgets import Steps
from tests.unit.planner.evidence.test_evidence import run
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration.machine import NOTHING, machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.step import explicit
from trainplan.planner.cases.case import Case
from trainplan.planner.comparisons.verdict import why_not
from trainplan.planner.documents.document import plan_json
from trainplan.planner.documents.written_plan import written
from trainplan.planner.evidence.envelope import Measurements, measurements
from trainplan.planner.evidence.evidence import is_inside
from trainplan.planner.evidence.trusted import OPTION, trusted_rules
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.case_search import kept_layout
from trainplan.planner.questions.trust import time_for_answer
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


@pytest.fixture(scope="module")
def free(small_gpus):
    return search(small_gpus, SearchOptions())


@pytest.fixture(scope="module")
def trusted(small_gpus):
    return search(small_gpus, SearchOptions(trusted=True))


@pytest.mark.parametrize("known", [FEW, measurements()])
@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
def test_the_rules_refuse_what_lies_outside_and_nothing_else(make_job, legal_table, model, known):
    job = make_job(model, "4x8:h100-sxm", 64)
    table = legal_table(job, 300, seed=3)
    broken = np.any([rule.broken(job, table) for rule in trusted_rules(job, known)], axis=0)
    inside = [is_inside(job, table.row(i), known) for i in range(len(table))]
    assert 0 < sum(inside) < len(inside)
    assert broken.tolist() == [not one for one in inside]


def test_a_rule_is_named_by_the_largest_value_measured_on_such_runtimes(make_job):
    job = make_job("small-dense", "4x8:h100-sxm", 64)
    names = {rule.name for rule in trusted_rules(job, FEW)}
    assert {"--trusted tp <= 8", "--trusted vpp <= 2", "--trusted dp <= 32"} <= names
    assert "--trusted offload <= 0" in names


def test_a_runtime_nobody_measured_is_refused_with_what_to_do(make_job):
    job = make_job("small-dense", "1x8:h100-sxm").model_copy(update={"runtime": "nanotron"})
    with pytest.raises(SpecError, match=r"no scored run is on nanotron.* --runtime"):
        search(job, SearchOptions(trusted=True))


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


@pytest.mark.parametrize("cluster", ["1x8:h100-sxm", "1x8:l4"])
def test_no_layout_inside_is_faster_than_the_bound(make_job, legal_table, cluster):
    job = make_job("small-dense", cluster, 32)
    found = search(job, SearchOptions(trusted=True))
    table = legal_table(job, 400, seed=8)
    broken = np.any([rule.broken(job, table) for rule in trusted_rules(job)], axis=0)
    rows = context_of(job, machine_for(job, NOTHING)).with_table(table.take(~broken))
    steps = [one.step_time_s for one in explicit(rows, memory_margin=0.05) if one.memory.fits]
    assert len(steps) > 10
    assert min(steps) >= found.certificate.lower_bound_s
    assert found.certificate.optimal


def test_trust_costs_nothing_where_the_fastest_lies_inside(make_job):
    job = make_job("small-dense", "2x8:h100-sxm", 64)
    found, free = search(job, SearchOptions(trusted=True)), search(job, SearchOptions())
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


def test_without_time_the_price_holds_all_the_same(small_gpus, free):
    for steps in (3, 8, 20):
        found = search(small_gpus, SearchOptions(trusted=True), Steps(steps))
        price = found.certificate.trusted
        assert price.value_without <= found.certificate.objective.value
        if price.lower_bound_without is not None:
            assert price.lower_bound_without <= free.best.estimate.step_time_s * (1 + 1e-9)


def test_where_nothing_inside_fits_to_drop_it_is_among_what_helps(make_job):
    job = make_job("llama3-8b", "1x1:h100-sxm", 16, 8192)
    answer = search(job, SearchOptions(trusted=True))
    assert "drop --trusted" in answer.changes
    assert search(job, SearchOptions()).best.layout.offload.optimizer > 0


def test_a_written_plan_is_read_back_as_trusted(small_gpus, free, trusted):
    found = written(json.dumps(plan_json(trusted)))
    assert found.options.trusted
    assert trusted.choices == (OPTION,)
    assert not written(json.dumps(plan_json(free))).options.trusted
    case = Case(small_gpus, found.options)
    reasons = why_not(case, found, free.best.layout, Unlimited()).reasons
    assert "the plan was made with --trusted offload <= 0" in reasons
    assert kept_layout(case, free.best.layout) is None
    assert kept_layout(case, trusted.best.layout) is not None


def test_near_ties_inside_come_before_near_ties_outside(make_job):
    even = SearchOptions(fix=(parse_choice("stages=even", excluded=False),))
    plan = search(make_job("llama2-13b", "2x8:a100-sxm-80gb", 256, 4096), even)
    inside = [one.inside_measured for one in plan.candidates if one.near_tie]
    assert set(inside) == {True, False}
    assert inside == sorted(inside, reverse=True)
    steps = [one.estimate.step_time_s for one in plan.candidates if one.near_tie]
    cut = inside.index(False)
    assert steps == [*sorted(steps[:cut]), *sorted(steps[cut:])]
    assert plan.best.estimate.step_time_s == min(
        one.estimate.step_time_s for one in plan.candidates
    )


def test_a_pipeline_of_measured_degrees_may_have_too_many_stages_in_all(make_job):
    job = make_job("llama3-70b", "8x8:h100-sxm", 128, 8192)
    layout = Layout(tp=4, pp=4, vpp=4, dp=4, schedule="interleaved")
    known = Measurements((run(tp=8, pp=8), run(tp=8, vpp=8, pp=1, dp=8, schedule="interleaved")))
    texts = [one.axis for one in known.beyond(run(pp=4, vpp=4).shape)]
    assert texts == ["pp * vpp"]
    assert not is_inside(job, layout, known)

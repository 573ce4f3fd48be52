"""Memory left to another tenant of the GPU: what it takes, what it costs, what it refuses."""

import json

import pytest

from trainplan.cli.pages.parts.evidence import plan_evidence_lines
from trainplan.cli.pages.parts.headline import job_line
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.base.units import GIB
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.planner.cases.case import Case, with_memory, without_reserve
from trainplan.planner.documents.document import plan_json
from trainplan.planner.documents.written_plan import written
from trainplan.planner.explanations.shadow_prices import shadow_prices
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.plan.target import Reserve
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.trust import time_for_answer
from trainplan.planner.work.budget import Unlimited

RESERVE = 48 * GIB
HELD = SearchOptions(memory_margin=0.05, search_options="none", slack=0.0)


@pytest.fixture(scope="module")
def job(make_job):
    return make_job("llama3.2-1b", "1x2:h100-sxm", 16, 8192)


@pytest.fixture(scope="module")
def reserving(job):
    return job.model_copy(update={"reserve_bytes": RESERVE})


@pytest.fixture(scope="module")
def plan(reserving):
    return search(reserving, HELD)


def test_a_machine_with_a_reserve_is_one_with_less_memory_and_nothing_else(job, reserving):
    whole, left = machine_for(job), machine_for(reserving)
    assert left.memory_bytes == whole.memory_bytes - RESERVE
    for name in ("memory_bytes_per_second", "linear", "nic_bytes_per_second", "num_gpus"):
        assert getattr(left, name) == getattr(whole, name)
    assert machine_for(job.model_copy(update={"reserve_bytes": 0})).memory_bytes == (
        whole.memory_bytes
    )


def test_every_group_of_unlike_nodes_leaves_the_reserve(job):
    cluster = parse_cluster("1x8:h100-sxm")
    other = parse_cluster("1x8:a100-sxm-80gb").groups[0]
    mixed = cluster.model_copy(update={"groups": (*cluster.groups, other)})
    plain = job.model_copy(update={"cluster": mixed})
    left = machine_for(plain.model_copy(update={"reserve_bytes": RESERVE})).groups
    whole = machine_for(plain).groups
    assert [b.memory_bytes - a.memory_bytes for a, b in zip(left, whole, strict=True)] == (
        [RESERVE, RESERVE]
    )


def test_the_answer_is_that_of_gpus_with_so_much_less_memory(job, plan):
    gib = (machine_for(job).memory_bytes - RESERVE) / GIB
    small = search(with_memory(Case(job, SearchOptions()), gib).job, HELD)
    assert small.best.layout == plan.best.layout
    assert small.best.estimate.step_time_s == plan.best.estimate.step_time_s
    assert plan.best.estimate.memory.capacity_bytes == gib * GIB


def test_the_certificate_says_what_the_reserve_costs(job, plan):
    free = search(job, HELD)
    price = plan.certificate.reserve
    assert free.certificate.reserve is None
    assert price.reserve_bytes == RESERVE
    assert price.value_without == pytest.approx(free.best.estimate.step_time_s, rel=1e-9)
    cost = plan.best.estimate.step_time_s / free.best.estimate.step_time_s - 1
    assert price.cost_fraction == pytest.approx(cost, abs=1e-9)
    assert cost > 0.001
    (line,) = [one for one in plan_evidence_lines(plan) if one.startswith("--reserve")]
    assert f"--reserve 48.0GiB costs {cost * 100:.1f} %" in line
    assert "48.0 GiB of every GPU reserved" in job_line(plan.job)
    assert "reserved" not in job_line(free.job)


def test_an_unknown_price_is_said_to_be_unknown(plan):
    unknown = Reserve(
        reserve_bytes=RESERVE, value_without=2.0, lower_bound_without=None, cost_fraction=0.0
    )
    certificate = plan.certificate.model_copy(update={"reserve": unknown})
    stated = list(plan_evidence_lines(plan.model_copy(update={"certificate": certificate})))
    assert stated[-1] == (
        "--reserve 48.0GiB: its price is not known, no time was left to search without it."
    )


def test_a_plan_document_keeps_the_reserve_and_older_ones_have_none(plan):
    document = plan_json(plan)
    assert document["reserve_bytes"] == RESERVE
    assert written(json.dumps(document)).job == plan.job
    older = {key: value for key, value in document.items() if key != "reserve_bytes"}
    assert written(json.dumps(older)).job.reserve_bytes == 0


def test_explain_prices_the_end_of_the_reserve(plan, only_changes):
    only_changes("reserve", "memory_tenth")
    case = Case(plan.job, SearchOptions(search_options="none"))
    step_time_s = plan.best.estimate.step_time_s
    prices = shadow_prices(case, plan.best.layout, step_time_s, Unlimited())
    (price,) = [one for one in prices if one.change == "reserve"]
    assert price.text == "no reserve of 48 GiB"
    same = [one.replanned for one in prices if one.change == "memory_tenth"]
    assert price.replanned.throughput_gain_fraction >= same[0].throughput_gain_fraction > 0
    assert without_reserve(case).job.reserve_bytes == 0


def test_a_reserve_of_all_memory_is_refused_in_one_line(job):
    for bytes_, gib in ((90 * GIB, "90"), (int(79.65 * GIB) + 1, "79.65")):
        with pytest.raises(SpecError) as caught:
            search(job.model_copy(update={"reserve_bytes": bytes_}))
        assert str(caught.value) == (
            f"--reserve {gib}GiB: a GPU has 79.65 GiB, so nothing is left for the job: reserve less"
        )


def test_where_nothing_fits_beside_it_dropping_the_reserve_is_offered(job):
    found = search(job.model_copy(update={"reserve_bytes": 75 * GIB}))
    assert isinstance(found, Infeasible)
    assert "drop --reserve 75GiB" in found.changes


def test_the_price_of_a_reserve_keeps_a_third_of_a_time_limit():
    class Minute(Unlimited):
        def seconds_left(self):
            return 60.0

    assert time_for_answer(SearchOptions(), Minute(), reserve=True).seconds_left() == 40
    assert time_for_answer(SearchOptions(), Minute(), reserve=False).seconds_left() == 60

"""What an explanation says of a plan."""

from dataclasses import asdict, fields, replace

import pytest

from tests.budgets import Steps
from trainplan.cli.documents.explain import ExplainDocument
from trainplan.cli.pages.explain import memory_line
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.step.results import Terms
from trainplan.planner.cases.case import (
    Case,
    memory_gib,
    with_added_memory,
    with_gpus,
    with_memory,
    with_nic,
)
from trainplan.planner.documents.document import plan_json
from trainplan.planner.explanations.changes import ADDED_GIB, changes
from trainplan.planner.explanations.explanation import RESOURCES, explain, memory_limit, shares
from trainplan.planner.explanations.robustness import robustness
from trainplan.planner.explanations.shadow_prices import shadow_prices
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.work.budget import Unlimited


@pytest.fixture(scope="module")
def job(make_job):
    return make_job("small-dense", "2x4:h100-sxm", 32, 4096)


@pytest.fixture(scope="module")
def plan(job):
    return search(job, SearchOptions(top=5))


@pytest.fixture(scope="module")
def explained(job, plan):
    layouts = tuple(candidate.layout for candidate in plan.candidates)
    return explain(Case(job, SearchOptions()), plan.best.layout, layouts[1:], Unlimited())


def test_every_term_waits_for_one_resource():
    terms = [term for names in RESOURCES.values() for term in names]
    assert sorted(terms) == sorted(field.name for field in fields(Terms))


def test_the_shares_sum_to_the_step(explained):
    assert sum(s.seconds for s in explained.shares) == pytest.approx(
        explained.estimate.step_time_s, rel=1e-12
    )
    assert sum(s.fraction for s in explained.shares) == pytest.approx(1)
    seconds = [share.seconds for share in explained.shares]
    assert seconds == sorted(seconds, reverse=True)


def test_the_critical_resource_follows_the_terms(plan):
    found = plan.best.estimate
    slow = replace(found, terms=replace(found.terms, bubble=10 * found.step_time_s))
    assert shares(slow)[0].resource == "pipeline"


def test_the_headroom_is_what_the_margin_leaves_above_the_fullest_rank(plan):
    found = memory_limit(plan.best.estimate, 0.1)
    capacity = plan.best.estimate.memory.capacity_bytes
    fullest = max(r.total_bytes for r in plan.best.estimate.memory.pipeline_ranks)
    assert found.rank.total_bytes == fullest
    assert found.headroom_bytes == pytest.approx(0.9 * capacity - fullest)


def test_more_of_a_machine_never_costs_throughput(explained):
    prices = {price.change: price for price in explained.shadow_prices}
    for name in ("memory", "memory_tenth", "nic", "margin"):
        assert prices[name].status in ("proved", "even")
        assert prices[name].replanned.throughput_gain_fraction >= 0
        kept, replanned = prices[name].kept, prices[name].replanned
        assert replanned.throughput_gain_fraction >= kept.throughput_gain_fraction


def test_a_price_is_the_search_of_the_changed_job(job, explained):
    price = next(p for p in explained.shadow_prices if p.change == "node_and_batch")
    case = with_gpus(Case(job, SearchOptions()), 12)
    training = job.training.model_copy(update={"global_batch_size": 48})
    found = search(case.job.model_copy(update={"training": training}))
    assert price.replanned.step_time_s == found.best.estimate.step_time_s
    speed = 1.5 * explained.estimate.step_time_s / found.best.estimate.step_time_s
    assert price.replanned.throughput_gain_fraction == pytest.approx(speed - 1)
    assert price.replanned.per_gpu_gain_fraction == pytest.approx(speed / 1.5 - 1)


def test_settings_that_the_job_leaves_off_are_priced_where_they_mean_something(make_job):
    def settings(job, layout):
        found = changes(Case(job, SearchOptions()), layout)
        others = ("bucket_mb", "ep", "etp")
        return [one.text for one in found if "=" in one.text and one.name not in others]

    dense = make_job("small-dense", "1x8:h100-sxm", 16)
    graph, stored = "cuda_graph=full_iteration", ["moment_dtype=bf16", "gradient_dtype=bf16"]
    exchanges = ["cp_comm_type=a2a", "cp_comm_type=all_gather"]
    assert settings(dense, Layout(dp=8)) == [graph, *stored]
    assert settings(dense, Layout(tp=2, dp=4)) == [graph, "overlap_tp_comm=true", *stored]
    assert settings(dense, Layout(cp=2, dp=4)) == [graph, *exchanges, *stored]
    stated = RuntimeOptions(cuda_graph="none", moment_dtype="bf16")
    dropped = settings(dense.model_copy(update={"options": stated}), Layout(dp=8))
    assert dropped == ["without moment_dtype=bf16", stored[1]], "graphs are off by themselves"
    assert settings(dense.model_copy(update={"runtime": "fsdp2"}), Layout(dp=8)) == []
    moe = make_job("small-moe", "1x8:h100-sxm", 16)
    dispatchers = ["moe_dispatcher=hybridep", "moe_dispatcher=deepep"]
    overlaps = ["overlap_moe_a2a=true", "overlap_shared_experts=true"]
    experts = ["cuda_graph=partial", *dispatchers, *overlaps, *stored]
    assert settings(moe, Layout(dp=8, ep=8)) == experts
    assert settings(moe, Layout(dp=8)) == ["cuda_graph=partial", *stored]
    bridge = moe.model_copy(update={"runtime": "megatron-bridge"})
    assert graph not in settings(bridge, Layout(dp=8, ep=8)), "not without HybridEP"
    hybrid = RuntimeOptions(moe_dispatcher="hybridep")
    assert graph in settings(bridge.model_copy(update={"options": hybrid}), Layout(dp=8, ep=8))
    latent = make_job("deepseek-v3", "1x8:h100-sxm", 16)
    assert "overlap_tp_comm=true" not in settings(latent, Layout(tp=8))


def test_settings_that_the_runtime_has_on_by_itself_are_not_priced(make_job):
    bridge = make_job("small-dense", "1x8:h100-sxm", 16).model_copy(
        update={"runtime": "megatron-bridge"}
    )
    found = shadow_prices(Case(bridge, SearchOptions()), Layout(tp=2, dp=4), 1.0, Steps(0))
    texts = {price.text for price in found}
    assert "cuda_graph=full_iteration" in texts
    assert "overlap_tp_comm=true" not in texts


def test_the_price_of_a_setting_is_the_search_with_it(job, explained):
    price = next(p for p in explained.shadow_prices if p.change == "cuda_graph")
    graphed = RuntimeOptions(cuda_graph="full_iteration")
    held = SearchOptions(search_options="none")
    found = search(job.model_copy(update={"options": graphed}), held)
    assert price.replanned.step_time_s == found.best.estimate.step_time_s
    gain = explained.estimate.step_time_s / price.replanned.step_time_s - 1
    assert price.replanned.throughput_gain_fraction == pytest.approx(gain)


def test_a_spent_budget_leaves_prices_untried_but_keeps_the_layout(job, plan):
    layout, step = plan.best.layout, plan.best.estimate.step_time_s
    found = list(shadow_prices(Case(job, SearchOptions()), layout, step, Steps(0)))
    assert {price.status for price in found} <= {"untried", "impossible"}
    assert all(price.replanned is None for price in found)
    memory = next(price for price in found if price.change == "memory")
    assert memory.kept.throughput_gain_fraction == 0


def test_a_cluster_of_one_domain_has_no_nic_to_price(make_job):
    case = Case(make_job("small-dense", "1x8:h100-sxm"), SearchOptions())
    layout = Layout(dp=8)
    prices = shadow_prices(case, layout, estimate(case.job, layout).step_time_s, Steps(0))
    nic = next(price for price in prices if price.change == "nic")
    assert nic.status == "impossible"
    assert "one scale-up domain" in nic.reason


def test_changing_nothing_of_the_machine_changes_nothing(job, plan):
    case, layout = Case(job, SearchOptions()), plan.best.layout
    same = [with_nic(case, 1.0), with_memory(case, memory_gib(job.cluster.groups[0]))]
    for changed in same:
        assert estimate(changed.job, layout).terms == plan.best.estimate.terms
    more = with_added_memory(case, 2)
    gained = estimate(more.job, layout).memory.capacity_bytes
    assert gained == plan.best.estimate.memory.capacity_bytes + 2 * 2**30


def test_the_ninetieth_percentile_ranks_by_the_upper_end(plan):
    fast, slow = plan.candidates[0], plan.candidates[-1]
    wide = replace(fast.estimate.uncertainty, step_time_high_s=1e3)
    risky = fast.model_copy(update={"estimate": replace(fast.estimate, uncertainty=wide)})
    found = robustness([risky, slow])
    assert [rival.rank_by_p90 for rival in found.rivals] == [2, 1]


def test_near_ties_of_a_plan_are_near_ties_of_its_explanation(plan, explained):
    marked = {str(c.layout) for c in plan.candidates if c.near_tie}
    assert marked == {str(r.layout) for r in explained.robustness.rivals if r.near_tie}


def test_an_explanation_prices_the_plan_as_it_was_written(plan, explained):
    written = plan_json(plan)["best"]["estimate"]
    assert explained.estimate.step_time_s == written["step_time_s"]
    assert asdict(explained.estimate.terms) == written["terms"]


def test_unequal_stages_have_a_price_and_the_even_split_does_not_keep_them(make_job, only_changes):
    only_changes("even")
    job = make_job("small-dense", "1x8:h100-sxm", 32, 2048)
    uneven = Layout(pp=4, dp=2, stages=stage_specs((1, 2, 2, 1)))
    step = estimate(job, uneven).step_time_s
    prices = shadow_prices(Case(job, SearchOptions()), uneven, step, Unlimited())
    (price,) = prices
    assert price.kept is None
    assert price.replanned.layout.stages is None
    best = search(job, SearchOptions(only_answer=True))
    assert price.replanned.step_time_s == best.best.estimate.step_time_s


@pytest.mark.parametrize(("gain", "binds"), [(0.0, False), (0.02, True)])
def test_memory_binds_if_any_step_of_it_buys_time(explained, gain, binds):
    def bought(price):
        if price.change != "memory_tenth":
            return price
        more = replace(price.replanned, throughput_gain_fraction=gain)
        return replace(price, replanned=more)

    found = replace(explained, shadow_prices=tuple(map(bought, explained.shadow_prices)))
    assert found.memory_binds is binds
    assert ("memory binds" in ExplainDocument.sentence(found)) is binds
    assert replace(found, shadow_prices=()).memory_binds is None


@pytest.mark.parametrize("status", ["found", "untried"])
def test_memory_is_not_said_to_be_enough_where_a_search_was_cut_short(explained, status):
    def cut(price):
        return replace(price, status=status) if price.change == "memory_tenth" else price

    found = replace(explained, shadow_prices=tuple(map(cut, explained.shadow_prices)))
    assert found.memory_binds is None
    assert "bind" not in ExplainDocument.sentence(found)
    assert "time" not in memory_line(found)


def test_a_proof_for_even_stages_does_not_bound_memory_of_uneven_ones(explained):
    def even(price):
        return (
            replace(price, status="even") if price.change in ("memory", "memory_tenth") else price
        )

    found = replace(explained, shadow_prices=tuple(map(even, explained.shadow_prices)))
    assert found.memory_binds is False
    uneven = found.layout.model_copy(update={"stages": stage_specs((1, 2, 2, 1))})
    assert replace(found, layout=uneven).memory_binds is None


def test_the_step_of_memory_is_two_gib_and_its_text_says_so(job, plan):
    case = Case(job, SearchOptions())
    prices = shadow_prices(case, plan.best.layout, plan.best.estimate.step_time_s, Steps(0))
    assert {price.change: price.text for price in prices}["memory"] == "2 GiB more memory per GPU"
    more = with_added_memory(case, ADDED_GIB)
    assert memory_gib(more.job.cluster.groups[0]) - memory_gib(job.cluster.groups[0]) == 2

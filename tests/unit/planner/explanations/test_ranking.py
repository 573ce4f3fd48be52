"""What each change buys by itself: failures and saves in closed form, and nothing of the slack."""

from dataclasses import replace
from functools import cache

import pytest

from tests.budgets import Steps
from trainplan.cli.pages.explain import ranking_line
from trainplan.costmodel.base.units import SECONDS_PER_DAY
from trainplan.costmodel.hardware.cluster import BetweenGroups
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.run_costs import goodput_of, run_steps, stretch_of
from trainplan.planner.cases.case import Case, with_setting
from trainplan.planner.evidence import unpublished
from trainplan.planner.explanations.changes import BUCKETS, TRAINS_OTHERWISE, WORTH, changes
from trainplan.planner.explanations.shadow_prices import Bought, kept_prices, ranking, shadow_prices
from trainplan.planner.plan import SearchOptions, changes_training
from trainplan.planner.questions import estimate, kept_layout
from trainplan.planner.questions.case_search import outcome
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited

LAYOUT = Layout(tp=2, dp=8, zero_stage=1, sequence_parallel=True)
FAILS = {"mtbf_node_days": 5.0, "checkpoint_gb_per_s": 1.0, "repair_hours": 12.0}


@pytest.fixture
def failing(make_job):
    """A job of known length on nodes that fail."""

    def of(tokens=10**12, **failures):
        job = make_job("small-dense", "2x8:h100-sxm", 32, 4096)
        stated = FailureSpec(**FAILS | failures)
        cluster = job.cluster.model_copy(update={"failures": stated})
        training = job.training.model_copy(update={"tokens": tokens})
        return job.model_copy(update={"cluster": cluster, "training": training})

    return of


@cache
def prices_of(job):
    """With no budget for searches: what is priced in closed form, and the rest untried."""
    step = estimate(job, LAYOUT).step_time_s
    return shadow_prices(Case(job, SearchOptions()), LAYOUT, step, Steps(0)), step


def test_a_way_to_save_buys_the_goodput_that_it_brings(failing):
    job = failing()
    prices, step = prices_of(job)
    (saves,) = [one for one in prices if one.change == "save_async"]
    other = failing(save="async")
    gain = stretch_of(job) / stretch_of(other) - 1
    assert saves.status == "proved"
    assert saves.replanned == saves.kept
    assert saves.replanned.layout == LAYOUT
    assert saves.replanned.step_time_s == step
    assert saves.replanned.throughput_gain_fraction == pytest.approx(gain)
    days = run_steps(job) * step / SECONDS_PER_DAY
    saved = days / goodput_of(job).fraction - days / goodput_of(other).fraction
    assert saves.replanned.saved_days == pytest.approx(saved)


def test_every_figure_of_failures_may_be_bought(failing):
    found = {one.change: one for one in prices_of(failing())[0]}
    bought = {"save_async", "save_local", "checkpoint", "restart", "mtbf", "spare_node"}
    assert bought <= found.keys()
    assert all(found[name].replanned.throughput_gain_fraction > 0 for name in sorted(bought))
    assert "save_sync" not in found
    local = {one.change: one.text for one in prices_of(failing(save="local"))[0]}
    assert "checkpoint" not in local
    spare = {one.change: one for one in prices_of(failing(spare_nodes=1))[0]}["spare_node"]
    assert spare.text == "2 spare nodes"
    assert spare.replanned.per_gpu_gain_fraction < spare.replanned.throughput_gain_fraction


def test_saves_that_the_runtime_has_not_are_not_offered(failing):
    job = failing().model_copy(update={"runtime": "transformers"})
    offered = changes(Case(job, SearchOptions()), LAYOUT)
    assert not [one.name for one in offered if one.name.startswith("save_")]


def test_without_failures_nothing_of_them_is_offered(make_job):
    job = make_job("small-dense", "2x8:h100-sxm", 32, 4096)
    prices, step = prices_of(job)
    names = {one.change for one in prices}
    assert names.isdisjoint({"save_async", "mtbf", "spare_node", "restart", "checkpoint"})
    assert all(one.saved_days is None for one in ranking(prices, job, step, step))


def test_what_buys_most_comes_first(failing):
    prices, _ = prices_of(failing())
    gains = [one.gain for one in prices]
    assert gains == sorted(gains, reverse=True)


def test_the_slack_of_a_plan_is_put_down_to_no_change(failing):
    job = failing()
    prices, step = prices_of(job)
    own = next(one for one in prices if one.change == "save_async")
    slack = replace(
        own,
        change="nic",
        kept=replace(own.kept, throughput_gain_fraction=0.0),
        replanned=replace(own.replanned, throughput_gain_fraction=0.01),
    )
    assert ranking([slack], job, step, step / 1.01) == ()
    (one,) = ranking([slack], job, step, step)
    assert one.gain_fraction == pytest.approx(0.01)
    assert not ranking([replace(slack, change="gpus_double")], job, step, step)


def test_what_the_plan_has_is_ranked_by_what_it_would_lose(failing):
    job = failing()
    prices, step = prices_of(job)
    own = next(one for one in prices if one.change == "save_async")
    lost = replace(own.replanned, throughput_gain_fraction=-0.2)
    without = replace(own, change="hpz", text="without hpz=8", kept=lost, replanned=lost)
    (one,) = ranking([without], job, step, step)
    assert (one.text, one.in_plan) == ("hpz=8", True)
    assert one.gain_fraction == pytest.approx(0.25)
    days = run_steps(job) * step * stretch_of(job) / SECONDS_PER_DAY
    assert one.of_days == pytest.approx(1.25 * days)
    assert one.saved_days == pytest.approx(0.25 * days)
    assert ranking_line([one]).startswith("What buys most: hpz=8 (in the plan) ")


def test_the_first_line_says_days_or_percents(failing):
    for tokens, words in ((10**12, "days of"), (None, "%")):
        job = failing(tokens=tokens)
        prices, step = prices_of(job)
        line = ranking_line(ranking(prices, job, step, step))
        assert words in line
        assert line.endswith("more below.")


@pytest.fixture
def islands(make_job):
    job = make_job("small-dense", "1x8:h100-sxm+1x8:h100-sxm", 32, 4096)
    slow = BetweenGroups(gb_per_s=0.1)
    return job.model_copy(
        update={"cluster": job.cluster.model_copy(update={"between_groups": slow})}
    )


def test_outer_steps_are_offered_between_islands_and_marked(islands):
    found = [one for one in changes(Case(islands, SearchOptions()), LAYOUT) if one.name == "diloco"]
    (change,) = found
    changed = change.apply(Case(islands, SearchOptions()))
    assert (changed.job.islands, changed.job.num_gpus) == (2, 16)
    assert changed.job.training.global_batch_size == 16
    prices, _ = prices_of(islands)
    (price,) = [one for one in prices if one.change == "diloco"]
    assert price.status == "untried"
    assert price.changes_training


def test_outer_steps_are_not_offered_where_there_are_some_or_no_islands(islands, make_job):
    joined = islands.model_copy(update={"outer": OuterSpec(islands=2, every=10, gb_per_s=0.1)})
    whole = make_job("small-dense", "2x8:h100-sxm", 32, 4096)
    for job in (joined, whole):
        names = {one.name for one in changes(Case(job, SearchOptions()), LAYOUT)}
        assert "diloco" not in names


def test_the_best_size_of_gradient_buckets_is_offered_where_none_is_stated(make_job):
    job, layout = make_job("small-dense", "2x8:h100-sxm", 32, 4096), Layout(dp=16, zero_stage=1)
    case = Case(job, SearchOptions())
    found = [one for one in changes(case, layout) if one.name == "bucket_mb"]
    steps = [kept_layout(with_setting(case, "bucket_mb", f"{n}"), layout) for n in BUCKETS]
    best = min(one.estimate.step_time_s for one in steps if one)
    own = f"{case.context.traits.usual_bucket_mb(16):.4g}"
    usual = kept_layout(with_setting(case, "bucket_mb", own), layout).estimate.step_time_s
    assert bool(found) == (best < (1 - WORTH) * usual)
    for one in found:
        assert kept_layout(one.apply(case), layout).estimate.step_time_s == best
    stated = with_setting(case, "bucket_mb", "16")
    texts = [one.text for one in changes(stated, layout) if one.name == "bucket_mb"]
    assert texts == ["bucket_mb=152.6, which is megatron-lm's own"]


def test_what_changes_the_training_is_asked_of_a_runtime_that_has_it_and_marked(make_job):
    job = make_job("small-dense", "2x8:h100-sxm", 32, 4096).model_copy(
        update={"runtime": "deepspeed"}
    )
    case = Case(job, SearchOptions())
    found = {one.name: one for one in changes(case, Layout(dp=16, zero_stage=3))}
    for name, value in TRAINS_OTHERWISE.items():
        changed = found[name].apply(case).job
        assert getattr(changed.options, name) == value
        assert len(changes_training(changed)) == 1
    other = make_job("small-dense", "2x8:h100-sxm", 32, 4096)
    names = {one.name for one in changes(Case(other, SearchOptions()), LAYOUT)}
    assert names.isdisjoint(TRAINS_OTHERWISE)


def test_second_copies_that_the_plan_has_are_left_out(make_job):
    job = make_job("small-dense", "2x8:h100-sxm", 32, 4096).model_copy(
        update={"runtime": "deepspeed"}
    )
    case, layout = Case(job, SearchOptions()), Layout(dp=16, zero_stage=3, hpz=8)
    (change,) = [one for one in changes(case, layout) if one.name == "hpz"]
    assert change.text == "without hpz=8"
    (held,) = [one for one in change.apply(case).options.fix if one.field == "hpz"]
    assert held.value == 1


def test_attention_by_sequence_holds_the_tensor_ranks_as_context_ranks(make_job):
    layout = Layout(tp=4, dp=4, ep=4, zero_stage=1, sequence_parallel=True)
    case = Case(make_job("small-moe", "2x8:h100-sxm", 32, 4096), SearchOptions())
    (change,) = [one for one in changes(case, layout) if one.name == "attention_by_sequence"]
    assert change.text.endswith("expert ranks: tp=1 cp=4 cp_comm_type=a2a")
    changed = change.apply(case)
    assert {one.field: one.value for one in changed.options.fix} == {"tp": 1, "cp": 4}
    assert changed.job.options.cp_comm_type == "a2a"


@pytest.mark.parametrize(
    ("model", "runtime", "tp"),
    [
        ("small-dense", "megatron-lm", 4),
        ("small-moe", "megatron-lm", 1),
        ("small-moe", "torchtitan", 4),
    ],
)
def test_only_experts_with_tensor_ranks_that_can_exchange_heads_have_it(
    make_job, model, runtime, tp
):
    job = make_job(model, "2x8:h100-sxm", 32, 4096).model_copy(update={"runtime": runtime})
    found = changes(Case(job, SearchOptions()), Layout(tp=tp, dp=16 // tp))
    assert "attention_by_sequence" not in {one.name for one in found}


def test_degrees_of_experts_are_left_out_or_let_go(make_job):
    job, layout = make_job("small-moe", "1x8:h100-sxm", 16), Layout(dp=8, ep=4, etp=2)

    def degrees(case):
        return {one.text: one for one in changes(case, layout) if one.name in ("ep", "etp")}

    other = degrees(Case(job, SearchOptions()))
    assert other.keys() == {"without ep=4", "without etp=2"}
    held = SearchOptions(fix=(parse_choice("ep=4", excluded=False),))
    free = degrees(Case(job, held))
    assert free.keys() == {"ep not held to 4", "without etp=2"}
    assert free["ep not held to 4"].apply(Case(job, held)).options.fix == ()
    dense = Case(make_job("small-dense", "1x8:h100-sxm", 16), SearchOptions())
    assert not [one for one in changes(dense, Layout(dp=8)) if one.name in ("ep", "etp")]


def test_capacity_is_priced_where_experts_are_uneven_and_changes_the_training(make_job):
    job = make_job("small-moe", "1x8:h100-sxm", 16)
    skewed = with_setting(Case(job, SearchOptions()), "routing", "random")
    step = estimate(skewed.job, Layout(dp=8, ep=8)).step_time_s
    prices = shadow_prices(skewed, Layout(dp=8, ep=8), step, Steps(0))
    (price,) = [one for one in prices if one.change == "moe_capacity_factor"]
    assert price.changes_training
    even = changes(Case(job, SearchOptions()), Layout(dp=8, ep=8))
    assert "moe_capacity_factor" not in {one.name for one in even}


def test_a_setting_that_no_published_run_had_is_priced_and_marked(make_job):
    """Layouts are held to those like published ones, the setting is what is priced."""
    job = make_job("small-moe", "1x8:h100-sxm", 16)
    job = with_setting(Case(job, SearchOptions()), "moe_dispatcher", "deepep").job
    layout = Layout(dp=8, ep=8, zero_stage=1)
    held = Case(job, SearchOptions(published=True, search_options="none", priced_settings=True))
    graphed = with_setting(held, "cuda_graph", "partial")
    kept = kept_layout(graphed, layout)
    assert kept
    assert any("cuda_graph=partial" in one.text for one in unpublished(graphed.context, layout))
    best = outcome(graphed, Unlimited()).best
    assert best.estimate.step_time_s <= kept.estimate.step_time_s
    fast = Bought(
        "cuda_graph", "cuda_graph=partial", 0.1, None, None, (), in_plan=False, beyond=("no",)
    )
    assert "(extrapolated)" in ranking_line([fast])
    assert "(extrapolated)" not in ranking_line([replace(fast, beyond=())])


def test_the_first_line_counts_changes_not_searched():
    one = Bought("nic", "NIC twice as fast", 0.018, None, None, (), in_plan=False)
    assert ranking_line([one]) == "What buys most: NIC twice as fast 1.8 %."
    cut = "What buys most: NIC twice as fast 1.8 %; 11 not searched anew: time limit."
    assert ranking_line([one], 11) == cut


def test_prices_of_the_layout_as_it_is_are_marked_where_no_run_is_like_it(make_job):
    case = Case(make_job("llama3-8b", "2x8:h100-sxm", 64), SearchOptions())
    beyond = {}
    for value in ("false", "true"):
        changed = with_setting(case, "overlap_tp_comm", value)
        step = estimate(changed.job, LAYOUT).step_time_s
        found = {one.text: one for one in kept_prices(changed, LAYOUT, step)}
        assert {one.status for one in found.values()} <= {"untried", "impossible"}
        graphs = found["cuda_graph=full_iteration"]
        assert graphs.kept is not None and graphs.replanned is None
        beyond[value] = graphs.beyond
    assert beyond["false"] == ()
    assert any("cuda_graph=full_iteration" in text for text in beyond["true"])

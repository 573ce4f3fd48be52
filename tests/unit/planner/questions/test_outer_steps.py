"""Plans of islands: the best of one, its share of the syncs, and what is counted of all."""

import pytest

from trainplan.cli.pages.parts.headline import chosen_lines
from trainplan.cli.pages.parts.islands import island_lines
from trainplan.cli.terminal import json_text
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import NOTHING, machine_for
from trainplan.costmodel.hardware.cluster import BetweenGroups, LinkSpec, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.outer.islands import island_job
from trainplan.costmodel.outer.of_job import sync_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.run_costs.money import run_steps
from trainplan.planner.cases import Case
from trainplan.planner.documents import chosen_from_json, plan_json
from trainplan.planner.explanations.shadow_prices import shadow_prices
from trainplan.planner.plan import Infeasible, SearchOptions
from trainplan.planner.questions import islands
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.questions.islands import search as searched
from trainplan.planner.work import Unlimited

TOKENS = 10**10


def whole(price=2.0):
    cluster = parse_cluster("1x8:h100-sxm+1x8:h100-sxm")
    groups = tuple(one.model_copy(update={"price_per_gpu_hour": price}) for one in cluster.groups)
    update = {"groups": groups, "between_groups": BetweenGroups(gb_per_s=0.125)}
    return Job(
        model=preset("llama3.2-1b"),
        training=TrainingSpec(seq_length=1024, global_batch_size=64, tokens=TOKENS),
        cluster=cluster.model_copy(update=update),
        runtime="torchtitan",
    )


@pytest.fixture(scope="module")
def plans():
    joined = island_job(whole().model_copy(update={"outer": OuterSpec(every=20)}))
    alone = joined.model_copy(update={"outer": None})
    options = SearchOptions(search_options="none", top=1, slack=0.0)
    return search(alone, options), search(joined, options)


def test_a_step_is_that_of_an_island_and_its_share_of_a_sync(plans):
    alone, joined = plans
    waits = sync_of(joined.job, machine_for(joined.job)).seconds / 20
    assert joined.best.layout == alone.best.layout
    step = alone.best.estimate.step_time_s
    assert joined.best.estimate.step_time_s == pytest.approx(step + waits)
    assert joined.best.estimate.terms.outer_comm == pytest.approx(waits)
    assert joined.certificate.optimal


def test_tokens_money_energy_and_hours_are_of_all_islands(plans):
    alone, joined = plans
    assert run_steps(alone.job) == pytest.approx(2 * run_steps(joined.job), abs=1)
    slower = joined.best.estimate.step_time_s / alone.best.estimate.step_time_s
    for name in ("money_per_run", "gpu_hours_per_run"):
        one, all_of_them = (getattr(plan.spent, name) for plan in plans)
        assert all_of_them == pytest.approx(slower * one, rel=1e-3)
    more = joined.spent.joules_per_step / alone.spent.joules_per_step
    assert 2 < more < 2 * slower


def test_a_plan_of_islands_comes_back(plans):
    joined = plans[1]
    job, layout = chosen_from_json(json_text(plan_json(joined)))
    assert (job.outer, layout) == (joined.job.outer, joined.best.layout)
    assert estimate(job, layout).step_time_s == joined.best.estimate.step_time_s


def test_it_is_said_to_change_the_training(plans):
    alone, joined = map(plan_json, plans)
    assert any("outer optimizer" in one for one in joined["changes_training"])
    assert not alone["changes_training"]


def test_the_outer_optimizer_takes_memory(plans):
    alone, joined = (plan.best.estimate.memory for plan in plans)
    assert joined.peak_allocated_bytes > alone.peak_allocated_bytes
    assert joined.host.host_bytes > alone.host.host_bytes == 0


BRIEF = SearchOptions(search_options="none", top=1, slack=0.0)


def test_free_rounds_are_long_enough_and_compared_with_a_plan_without():
    plan = searched(whole().model_copy(update={"outer": OuterSpec()}), BRIEF)
    joined = plan.outer_step
    assert plan.job.outer.every == joined.every
    assert 0.95 <= joined.utilisation < 0.97
    assert joined.step_time_s == pytest.approx(plan.best.estimate.step_time_s)
    assert joined.local_step_s < joined.step_time_s < joined.without_step_s
    assert joined.chosen
    assert plan_json(plan)["outer_step"]["every"] == joined.every


def test_a_deadline_that_islands_alone_meet_has_an_answer():
    job = whole().model_copy(update={"outer": OuterSpec()})
    days = spent_days(searched(job, BRIEF))
    late = spent_days(searched(whole(), BRIEF))
    assert days < 0.7 * late
    plan = searched(job, BRIEF.model_copy(update={"deadline_days": 1.05 * days}))
    assert spent_days(plan) < 1.05 * days < late
    assert plan.outer_step.without_step_s > 1.05 * plan.outer_step.step_time_s


def spent_days(plan):
    return run_steps(plan.job) * plan.best.estimate.step_time_s / 86400


@pytest.mark.parametrize("objective", ["gpus", "cost"])
def test_free_rounds_are_long_enough_on_the_part_that_is_taken(objective):
    options = BRIEF.model_copy(update={"objective": objective})
    job = whole().model_copy(update={"outer": OuterSpec(islands=2)})
    groups = tuple(one.model_copy(update={"num_nodes": 2}) for one in job.cluster.groups)
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": groups})})
    assert searched(job, options).outer_step.utilisation >= 0.95


def test_islands_are_offered_where_they_are_much_faster():
    plan = searched(whole(), BRIEF)
    joined = plan.outer_step
    assert plan.job.outer is None
    assert not joined.chosen
    assert joined.step_time_s < 0.9 * plan.best.estimate.step_time_s == 0.9 * joined.without_step_s


@pytest.mark.parametrize("changes", [{"only_answer": True}, {"objective": "cost"}])
def test_islands_are_not_offered_beside_other_answers(changes):
    assert searched(whole(), BRIEF.model_copy(update=changes)).outer_step is None


def test_islands_are_not_offered_over_fast_links():
    job = whole()
    fast = {"between_groups": BetweenGroups(gb_per_s=400.0)}
    plan = searched(job.model_copy(update={"cluster": job.cluster.model_copy(update=fast)}), BRIEF)
    assert plan.outer_step is None or plan.outer_step.step_time_s < 0.9 * (
        plan.best.estimate.step_time_s
    )


def test_what_fits_on_no_island_is_infeasible():
    job = whole().model_copy(update={"reserve_bytes": 79 << 30, "outer": OuterSpec()})
    found = searched(job, BRIEF.model_copy(update={"only_answer": True}))
    assert isinstance(found, Infeasible)


def test_a_tower_has_no_gpus_of_its_own_on_islands():
    job = whole().model_copy(update={"outer": OuterSpec()})
    with pytest.raises(SpecError, match="not priced on islands"):
        searched(job, BRIEF.model_copy(update={"tower": "apart"}))


def test_a_job_that_is_not_parted_is_searched_as_one_of_its_islands():
    job = whole().model_copy(update={"outer": OuterSpec(every=20)})
    assert search(job, BRIEF).job.outer == island_job(job).outer


class Late(Unlimited):
    """No time is left."""

    def spent(self):
        return True


def test_what_is_not_searched_in_time_is_not_known(plans):
    late = islands._offering(plans[0], whole(), Late(), NOTHING)
    assert late.outer_step is None
    (first,) = chosen_lines(late.job, late.notes)
    assert first.startswith("not known whether islands")


def test_links_and_rounds_of_islands_have_their_price(plans, only_changes):
    names = {"island_links", "outer_dtype", "outer_overlap", "outer_every"}
    only_changes(*names)
    plan = plans[1]
    case = Case(plan.job, BRIEF, NOTHING)
    step_s = plan.best.estimate.step_time_s
    found = {one.change: one for one in shadow_prices(case, plan.best.layout, step_s, Unlimited())}
    assert set(found) == names
    waits = plan.best.estimate.terms.outer_comm
    for name in ("island_links", "outer_dtype", "outer_every"):
        gain = found[name].kept.throughput_gain_fraction
        assert gain == pytest.approx(step_s / (step_s - waits / 2) - 1)


def test_a_page_shows_what_islands_take_and_what_they_would():
    held = OuterSpec(islands=2, every=20)
    chosen = searched(whole().model_copy(update={"outer": held}), BRIEF).outer_step
    text = " ".join(island_lines(chosen))
    assert "2 islands, joined every 20 local steps" in text
    assert "are the fewest for 95 %" in text
    assert "without outer steps" in text
    offered = chosen.model_copy(update={"chosen": False, "tried": ()})
    assert "--allow diloco, which changes the training" in " ".join(island_lines(offered))
    unknown = chosen.model_copy(update={"without_step_s": None})
    assert "not known" in " ".join(island_lines(unknown))
    assert not list(island_lines(None))


def test_islands_are_not_offered_where_links_were_measured():
    links = LinkSpec(nodes=("a", "b"), gb_per_s=((0, 1), (1, 0)))
    job = whole()
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"links": links})})
    plan = searched(job, SearchOptions(search_options="none", top=1))
    assert plan.outer_step is None


def of_groups(count, batch, **outer):
    """So many islands of one node."""
    job = whole()
    groups = job.cluster.groups[:1] * count
    training = job.training.model_copy(update={"global_batch_size": batch})
    cluster = job.cluster.model_copy(update={"groups": groups})
    update = {"cluster": cluster, "training": training, "outer": OuterSpec(**outer)}
    return job.model_copy(update=update)


def test_fewer_islands_are_the_answer_where_all_cannot_share_the_batch():
    plan = searched(of_groups(3, 64, every=5000), BRIEF)
    joined = plan.outer_step
    assert (plan.job.islands, joined.idle_islands, joined.held) == (2, 1, False)
    assert [one.islands for one in joined.tried] == [3, 2, 1]
    assert "does not divide among 3" in joined.tried[0].reason
    text = " ".join(island_lines(joined))
    assert "1 of 3 islands stay idle" in text
    assert "other numbers, by a brief search: 3 islands no plan" in text


def test_no_outer_steps_are_the_answer_where_they_cost_more():
    options = BRIEF.model_copy(update={"objective": "cost"})
    plan = searched(of_groups(2, 64, every=2), options)
    joined, target = plan.outer_step, plan.certificate.objective
    assert plan.job.outer is None
    assert not joined.chosen
    assert target.value == min(one.value for one in joined.tried)
    assert "allowed and not taken" in " ".join(island_lines(joined, target.unit))
    assert not plan_json(plan)["changes_training"]


def test_of_a_stated_number_the_plan_without_is_compared_by_the_objective():
    options = BRIEF.model_copy(update={"objective": "cost"})
    plan = searched(of_groups(2, 64, islands=2, every=50), options)
    assert plan.outer_step.held
    text = " ".join(island_lines(plan.outer_step, plan.certificate.objective.unit))
    assert "without outer steps" in text
    assert f", {plan.outer_step.tried[-1].value:.0f} USD, by a brief search" in text

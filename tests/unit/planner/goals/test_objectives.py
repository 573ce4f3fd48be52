"""Money, energy and sizes of a cluster: each formula by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.budgets import Steps
from trainplan.cli.pages.parts.objective import amount
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration import NOTHING
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.catalog.entries import gpu
from trainplan.costmodel.hardware.cluster import BetweenGroups, parse_cluster
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.run_costs.energy import (
    MEMORY_SHARE,
    PRODUCTS_SHARE,
    WAITING_SHARE,
    energy_of,
    limit_watts,
)
from trainplan.costmodel.run_costs.money import longest_step_seconds, price_per_second, run_steps
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import explicit
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.documents.chosen import chosen_from_json
from trainplan.planner.documents.document import plan_json
from trainplan.planner.goals.answered import answer
from trainplan.planner.goals.cluster_sizes import (
    MOST_COMBINED,
    MOST_SIZES,
    node_counts,
    part_jobs,
    scale_of,
    tries_all,
)
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.fronts import TIE, Point, nondominated, without_ties
from trainplan.planner.plan.target import Target
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice
from trainplan.planner.tree.result import StepEnergy
from trainplan.planner.work.budget import Unlimited


def priced(text, *prices):
    """A cluster whose groups have these prices."""
    cluster = parse_cluster(text)
    groups = tuple(
        group.model_copy(update={"price_per_gpu_hour": price})
        for group, price in zip(cluster.groups, prices, strict=True)
    )
    return cluster.model_copy(update={"groups": groups})


def test_a_cluster_costs_what_its_gpus_cost():
    assert price_per_second(priced("2x8:h100-sxm", 2.25)) == pytest.approx(16 * 2.25 / 3600)
    mixed = priced("1x8:h100-sxm+2x8:a100-sxm-80gb", 2.0, 1.0)
    assert price_per_second(mixed) == pytest.approx((8 * 2 + 16 * 1) / 3600)


@pytest.mark.parametrize("prices", [(None, 1.0), (1.0, None), (0.0, 0.0)])
def test_money_without_prices_is_refused_by_name(prices):
    with pytest.raises(SpecError, match="price_per_gpu_hour"):
        price_per_second(priced("1x8:h100-sxm+2x8:a100-sxm-80gb", *prices))


def test_a_deadline_is_shared_by_the_steps_of_the_run(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 10, 1000, tokens=25_000)
    assert run_steps(job) == 3
    assert longest_step_seconds(job, 1.0) == 86_400 / 3
    endless = make_job("small-dense", "1x8:h100-sxm", 10, 1000)
    assert run_steps(endless) is None
    with pytest.raises(SpecError, match="--tokens"):
        longest_step_seconds(endless, 1.0)


def test_power_limits_add_up_over_groups_and_an_unknown_one_is_named():
    assert limit_watts(parse_cluster("1x8:h100-sxm+2x4:a100-sxm-80gb")) == 8 * 700 + 8 * 400
    cluster = parse_cluster("1x8:h100-sxm")
    limited = cluster.groups[0].model_copy(update={"power_limit_w": 500})
    assert limit_watts(cluster.model_copy(update={"groups": (limited,)})) == 8 * 500
    from_file = cluster.groups[0].model_copy(update={"device": nameless_power()})
    with pytest.raises(SpecError, match="power limit of h100-sxm is unknown"):
        limit_watts(cluster.model_copy(update={"groups": (from_file,)}))


def nameless_power():
    """A device of a cluster file without a power limit."""

    return gpu("h100-sxm").model_copy(update={"tdp_w": None})


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_energy_of_one_gpu_is_that_of_its_terms(make_job, recompute):
    job = make_job("small-dense", "1x1:h100-sxm", 4)
    full = recompute == "full"
    layout = Layout(
        recompute=recompute,
        recompute_method="uniform" if full else None,
        recompute_num_layers=1 if full else None,
    )
    machine, traits = machine_of(job.cluster, "bf16"), traits_of(job)
    table = LayoutTable.of([layout])
    terms = explicit(Candidates(job, machine, traits, table))[0].terms
    seconds = step_seconds(Candidates(job, machine, traits, table))
    joules = StepEnergy(energy_of(job, machine, traits)).value(table, seconds)[0]
    busy = (PRODUCTS_SHARE - WAITING_SHARE) * (terms.gemm + terms.attention)
    busy += (MEMORY_SHARE - WAITING_SHARE) * terms.elementwise
    by_hand = 700 * (WAITING_SHARE * seconds[0] + busy)
    if full:
        assert by_hand < joules < by_hand + 700 * (PRODUCTS_SHARE - WAITING_SHARE) * terms.recompute
    else:
        assert joules == pytest.approx(by_hand)
    assert WAITING_SHARE * 700 * seconds[0] < joules < 700 * seconds[0]


def test_a_slower_machine_needs_more_energy_for_the_same_step(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 16)
    machine, traits = machine_of(job.cluster, "bf16"), traits_of(job)
    table = LayoutTable.of([Layout(tp=2, dp=4, zero_stage=1)])
    joules = []
    for speed in (1.0, 0.5):
        one = replace(machine, speed=speed)
        seconds = step_seconds(Candidates(job, one, traits, table))
        joules.append(StepEnergy(energy_of(job, one, traits)).value(table, seconds)[0])
    assert joules[1] == pytest.approx(2 * joules[0])


def test_a_step_beyond_the_limit_is_no_answer(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 16)
    machine, traits = machine_of(job.cluster, "bf16"), traits_of(job)
    table = LayoutTable.of([Layout(tp=2, dp=4, zero_stage=1)])
    objective = StepEnergy(energy_of(job, machine, traits), most_seconds=1.0)
    assert np.isfinite(objective.value(table, np.array([1.0]))).all()
    assert np.isinf(objective.value(table, np.array([1.0001]))).all()


@pytest.mark.parametrize("nodes", [1, 7, 32, 33, 100, 512, 4096])
def test_every_node_count_is_tried_or_about_so_many(nodes):
    counts = node_counts(nodes)
    assert counts[0] == 1
    assert counts[-1] == nodes
    assert len(counts) <= 2 * MOST_SIZES
    if nodes <= MOST_SIZES:
        assert counts == tuple(range(1, nodes + 1))


def nodes_of_parts(job):
    """Nodes of each group, of every part that is tried."""
    return [
        tuple((one.gpu, one.num_nodes) for one in part.cluster.groups) for part in part_jobs(job)
    ]


def test_every_number_of_nodes_of_every_group_is_a_part(make_job):
    job = make_job("small-dense", "1x8:h100-sxm+2x4:a100-sxm-80gb", 16)
    fast, slow = ("h100-sxm", 1), "a100-sxm-80gb"
    parts = {(fast,), ((slow, 1),), ((slow, 2),), (fast, (slow, 1)), (fast, (slow, 2))}
    assert set(nodes_of_parts(job)) == parts
    assert len(part_jobs(job)) == len(parts)


@pytest.mark.parametrize("between", [None, BetweenGroups(gb_per_s=0.125)])
def test_equal_parts_are_tried_once(make_job, between):
    job = make_job("small-dense", "2x8:h100-sxm+3x8:h100-sxm", 16)
    cluster = job.cluster.model_copy(update={"between_groups": between})
    parts = part_jobs(job.model_copy(update={"cluster": cluster}))
    nodes = [sorted(group.num_nodes for group in one.cluster.groups) for one in parts]
    if between is None:  # five nodes of one kind
        assert [sum(one) for one in nodes] == [1, 2, 3, 4, 5]
    else:
        alone, both = [[1], [2], [3]], [[1, 1], [1, 2], [1, 3], [2, 2], [2, 3]]
        assert sorted(nodes) == sorted(alone + both)
        joined = {len(one.cluster.groups): one.cluster.between_groups for one in parts}
        assert joined == {1: None, 2: between}


@pytest.mark.parametrize(
    "text", ["100x8:h100-sxm+64x8:a100-sxm-80gb", "+".join(["9x8:h100-sxm", "9x8:b200"] * 3)]
)
def test_of_many_combinations_few_are_tried_and_groups_alone_are(make_job, text):
    job = make_job("small-dense", text, 16)
    parts = nodes_of_parts(job)
    assert not tries_all(job.cluster)
    assert len(parts) <= 2 * MOST_COMBINED
    for group in job.cluster.groups:
        alone = [one[0][1] for one in parts if len(one) == 1 and one[0][0] == group.gpu]
        assert set(alone) >= set(node_counts(group.num_nodes))
    assert tuple((one.gpu, one.num_nodes) for one in job.cluster.groups) in parts


def test_the_plan_of_fewer_nodes_is_a_plan_for_those_nodes(make_job):
    job = make_job("gpt2", "3x8:h100-sxm", 16, 1024, tokens=10**9)
    options = SearchOptions(objective="gpus", deadline_days=30, only_answer=True)
    plan = search(job, options)
    assert plan.job.cluster.num_gpus == 8

    read, layout = chosen_from_json(json.dumps(plan_json(plan)))
    assert read.cluster.groups[0].num_nodes == 1
    assert layout == plan.best.layout


def test_a_memory_search_cut_short_does_not_claim_a_proof(make_job):
    job = make_job("small-dense", "1x2:h100-sxm", 8)
    fix = (parse_choice("offload=0", excluded=False),)
    options = SearchOptions(
        objective="memory", slack=0.5, only_answer=True, search_options="none", fix=fix
    )
    needed = search(job, options).certificate.objective
    unproved = 0
    for steps in (3, 5, 10, 40):
        cut = search(job, options, Steps(steps)).certificate
        assert cut.objective.lower_bound <= needed.value
        assert needed.value <= cut.objective.value
        assert cut.optimal == (cut.gap_fraction == 0)
        unproved += not cut.optimal
    assert unproved


def test_a_target_of_nothing_has_no_gap():
    target = Target(name="cost", unit="USD", per="step", value=0.0, lower_bound=0.0)
    assert target.gap_fraction == 0
    half = target.model_copy(update={"value": 4.0, "lower_bound": 3.0})
    assert half.gap_fraction == 0.25


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, "s", "1.50 s"),
        (2**31, "bytes", "2.0 GiB"),
        (16_235.0, "J", "16.2 kJ"),
        (7.2e6, "J", "2 kWh"),
        (5.4e12, "J", "1,500.0 MWh"),
        (64.0, "GPUs", "64 GPUs"),
        (1234.5, "USD", "1,234 USD"),
        (0.01741, "EUR", "0.0174 EUR"),
    ],
)
def test_a_figure_is_written_with_its_unit(value, unit, text):
    assert amount(value, unit) == text


def test_sizes_that_were_searched_below_the_best_one_have_bounds_that_hold(make_job):
    """Each size alone, to its own best layout; some sizes with an answer are cut short together."""
    job = make_job("small-dense", "4x1:h100-sxm", 8, tokens=10**9)
    group = job.cluster.groups[0].model_copy(update={"memory_gib": 3})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    options = SearchOptions(objective="energy", search_options="none")
    context = SearchContext.of(job, options, NOTHING, Unlimited())
    best = answer(context).target
    alone = {
        one.cluster.num_gpus: context.best(context.with_job(one).search("energy")).value
        * scale_of(one, "energy")
        for one in part_jobs(job)
    }
    assert best.value == pytest.approx(min(alone.values()))
    assert any(one.value is None for one in best.tried)
    for one in best.tried:
        assert best.value <= one.bound * (1 + 1e-12) <= alone[one.num_gpus] * (1 + 2e-12)


@pytest.fixture(scope="module")
def point_of(make_job):
    """A point with these figures; the layout is beside the matter."""
    job = make_job("small-dense", "1x1:h100-sxm", 4)
    shown = estimate(job, Layout())

    def point(first, second, num_gpus=1):
        return Point(num_gpus=num_gpus, layout=Layout(), estimate=shown, values=(first, second))

    return point


def test_of_points_equal_in_one_figure_the_better_one_by_the_other_is_kept(point_of):
    points = [point_of(2, 5), point_of(1, 5), point_of(3, 4), point_of(3, 2), point_of(4, 2)]
    assert nondominated(points) == (points[1], points[3])


def test_of_equal_points_the_one_on_fewer_gpus_is_kept(point_of):
    many, few = point_of(1, 5, num_gpus=8), point_of(1, 5, num_gpus=4)
    assert nondominated([many, few]) == (few,)


def test_points_that_buy_one_figure_with_the_other_are_all_kept(point_of):
    points = [point_of(1, 9), point_of(2, 8), point_of(3, 7)]
    assert nondominated(points[::-1]) == tuple(points)
    assert nondominated([]) == ()


def test_points_that_are_a_tie_in_both_figures_are_one(point_of):
    """No chain of ties drops what is further from every point that is kept."""
    near, far = 1 - 0.9 * TIE, 1 + 1.1 * TIE
    first, tied, one, other = (
        point_of(1, 5),
        point_of(1 + 0.9 * TIE, 5 * near),
        point_of(far, 5 * near * near),
        point_of(far * far, 5 * near**3),
    )
    assert without_ties((first, tied, one, other)) == (first, one, other)
    assert without_ties((point_of(1, 5), point_of(2, 5 * near))) == (
        point_of(1, 5),
        point_of(2, 5 * near),
    )
    assert without_ties(()) == ()

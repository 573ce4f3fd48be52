"""A part of the cluster that is faster alone is named by every command that prices all of it."""

import numpy as np
import pytest

from trainplan.cli.pages.parts.objective import objective_lines
from trainplan.costmodel.hardware.cluster import BetweenGroups, FabricTier, NicSpec
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.run_costs import goodput_of, stretch_of
from trainplan.planner.cases import Case
from trainplan.planner.comparisons.parameters import parse_varied
from trainplan.planner.comparisons.sweeps import sweep
from trainplan.planner.goals.alone import PART_ALONE, part_alone
from trainplan.planner.goals.cluster_sizes import island_jobs
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.fronts import pareto
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.space import parse_choice
from trainplan.planner.work import DeadlineBudget, Unlimited

HELD = ("tp=1", "vpp=1", "cp=1", "recompute=none", "zero_stage=1", "offload.optimizer=0")
FEW = SearchOptions(
    search_options="none", fix=tuple(parse_choice(text, excluded=False) for text in HELD), slack=0
)


@pytest.fixture
def islands(make_job):
    """Two nodes with 10 MB/s between them."""
    job = make_job("small-dense", "1x2:h100-sxm+1x2:h100-sxm", 8)
    slow = job.cluster.model_copy(update={"between_groups": BetweenGroups(gb_per_s=0.01)})
    few = job.model.model_copy(update={"num_hidden_layers": 4})
    return job.model_copy(update={"cluster": slow, "model": few})


@pytest.fixture
def failures():
    """A job whose nodes fail as is stated."""

    def of(job, **stated):
        cluster = job.cluster.model_copy(update={"failures": FailureSpec(**stated)})
        return job.model_copy(update={"cluster": cluster})

    return of


class Struck(DeadlineBudget):
    """No time is left."""

    def __init__(self):
        super().__init__(Unlimited())

    def spent(self):
        return True


def said(job, layout, budget=None):
    context = SearchContext.of(job, FEW, Case(job, FEW).measured, budget or Unlimited())
    return part_alone(context, estimate(job, layout))


def test_a_price_over_slow_links_says_what_one_island_takes(islands):
    text = said(islands, Layout(dp=4))
    alone = search(island_jobs(islands)[0], replace_time(FEW)).best.estimate.step_time_s
    assert text == (f"{PART_ALONE} is faster: {alone:.4g} s on 2 of the 4 GPUs (1x2:h100-sxm)",)


def test_where_nodes_fail_the_part_that_ends_a_run_first_is_named(make_job, failures):
    """A step on both nodes is faster than on one, and both lose most of the time."""
    job = make_job("small-dense", "2x2:h100-sxm", 8)
    group = job.cluster.groups[0].model_copy(update={"nic": NicSpec(per_node=1, gb_per_s=20)})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    layout = Layout(pp=2, dp=2, zero_stage=1, micro_batch_size=2)
    assert said(job, layout) == ()
    fragile = {"mtbf_node_days": 1.0, "repair_hours": 24.0, "checkpoint_gb_per_s": 1.0}
    failing = failures(job, **fragile)
    (text,) = said(failing, layout)
    one = island_jobs(failing)[0]
    alone = search(one, replace_time(FEW)).best.estimate.step_time_s
    both = estimate(failing, layout).step_time_s
    assert alone > both
    assert alone * stretch_of(one) < both * stretch_of(failing)
    shares = (f"{100 * goodput_of(job).fraction:.1f} %" for job in (one, failing))
    assert text.startswith(f"{PART_ALONE} is faster: {alone:.4g} s on 2 of the 4 GPUs")
    assert text.endswith(", with goodput {}, not {}".format(*shares))
    whole = search(failing, FEW.model_copy(update={"whole_cluster": True}))
    assert [note for note in whole.notes if PART_ALONE in note]
    assert search(failing, FEW).job.cluster.num_gpus == 2


def test_all_nodes_are_counted_where_they_fail_too_often_to_end(make_job, failures):
    job = make_job("small-dense", "4x2:h100-sxm", 8)
    failing = failures(job, mtbf_node_days=0.05, checkpoint_gb_per_s=2e-4)
    assert stretch_of(failing) == np.inf
    plan = search(failing, FEW)
    assert plan.job.cluster.num_gpus < 8
    assert plan.certificate.objective.tried[-1].num_gpus == 8
    (line,) = objective_lines(plan)
    assert f"{plan.job.num_gpus} of the 8 GPUs are faster: " in line
    assert line.endswith(" a step with failures, no layout on all 8 is legal, fits and ends")


def test_a_bound_of_nothing_is_not_a_figure(islands):
    plan = search(islands, FEW.model_copy(update={"objective": "memory"}))
    target = plan.certificate.objective
    unknown = target.model_copy(update={"lower_bound": 0.0})
    certificate = plan.certificate.model_copy(update={"objective": unknown})
    (line,) = objective_lines(plan.model_copy(update={"certificate": certificate}))
    assert (
        line.partition("; ")[2]
        == "not proved: how far down it may go is not known with even stages"
    )


def replace_time(options):
    return options.model_copy(update={"only_answer": True})


def test_without_time_it_is_not_known(islands):
    (text,) = said(islands, Layout(dp=4), Struck())
    assert text.startswith(f"not known whether {PART_ALONE} is faster")


def test_fast_links_say_nothing_and_start_no_search(make_job, monkeypatch):
    job = make_job("llama2-7b", "2x8:h100-sxm", 64)
    monkeypatch.setattr("trainplan.planner.goals.best_part._Timed", None)
    assert said(job, Layout(dp=16, zero_stage=3)) == ()


def test_of_an_island_that_outer_steps_join_nothing_is_told(make_job):
    job = make_job("small-dense", "2x2:h100-sxm", 8)
    slow = NicSpec(per_node=1, gb_per_s=0.001)
    group = job.cluster.groups[0].model_copy(update={"nic": slow})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    assert said(job, Layout(dp=4))
    outer = OuterSpec(islands=2, every=10, gb_per_s=1.0)
    assert said(job.model_copy(update={"outer": outer}), Layout(dp=4)) == ()


def test_islands_are_groups_or_what_lies_below_a_level_of_the_network(make_job):
    def nodes(job):
        return [sum(g.num_nodes for g in one.cluster.groups) for one in island_jobs(job)]

    job = make_job("small-dense", "8x2:h100-sxm", 16)
    tier = FabricTier(reach_gpus=8, oversubscription=4)
    tiered = job.cluster.model_copy(update={"fabric": (tier,)})
    assert nodes(job) == [1]
    assert nodes(job.model_copy(update={"cluster": tiered})) == [4, 1]
    assert nodes(make_job("small-dense", "3x2:h100-sxm+2x2:a100-sxm-80gb", 16)) == [3, 2, 1, 1]
    assert nodes(make_job("small-dense", "1x8:h100-sxm", 16)) == []


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "memory"},
        {"whole_cluster": True},
        {"objective": "energy", "whole_cluster": True},
    ],
    ids=str,
)
def test_every_objective_that_uses_all_nodes_names_the_faster_part(islands, options):
    plan = search(islands, FEW.model_copy(update=options))
    assert plan.job.cluster.num_gpus == 4
    assert [note for note in plan.notes if PART_ALONE in note]


@pytest.mark.parametrize("objective", ["time", "energy", "gpus"])
def test_an_objective_that_leaves_nodes_out_takes_it(islands, objective):
    plan = search(islands, FEW.model_copy(update={"objective": objective}))
    assert plan.job.cluster.num_gpus == 2
    assert not [note for note in plan.notes if PART_ALONE in note]


def test_a_point_of_a_sweep_names_it_and_a_front_has_its_layouts(islands):
    case = Case(islands, FEW)
    swept = sweep(case, [parse_varied("global_batch_size=8")], Unlimited())
    assert PART_ALONE in swept.curves[0].points[0].alone
    front = pareto(islands, ("memory", "time"), FEW)
    assert front.sizes == (2, 4)
    assert front.points[-1].num_gpus == 2

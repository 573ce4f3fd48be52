"""The next best plan: what it may change, by how a checkpoint was saved."""

import json

import pytest

from trainplan.costmodel.hardware.cluster import LinkSpec, parse_cluster
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.run_costs.goodput import stretch_of
from trainplan.planner.cases import Case
from trainplan.planner.documents import chosen_from_json, plan_json, written
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions import estimate
from trainplan.planner.replan import left_of, replan
from trainplan.planner.space import parse_choice
from trainplan.planner.work import Unlimited

DEGREES = ("tp", "pp", "vpp", "ep", "etp")


def case_of(make_job, runtime="megatron-lm", batch=48, **options):
    job = make_job("small-dense", "6x4:h100-sxm", batch).model_copy(update={"runtime": runtime})
    return Case(job, SearchOptions(search_options="none", **options))


def replanned(case, layout, lost="1", **how):
    return replan(case, layout, left_of(case.job.cluster, [lost]), Unlimited(), **how)


PIPELINE = Layout(tp=2, pp=3, dp=4, sequence_parallel=True)
UNEVEN = PIPELINE.model_copy(update={"stages": stage_specs((1, 3, 2))})


@pytest.mark.parametrize("layout", [PIPELINE, UNEVEN], ids=["even", "uneven"])
def test_buckets_of_megatron_keep_the_degrees_and_the_stages(make_job, layout):
    found = replanned(case_of(make_job), layout)
    best = found.best.plan.best.layout
    assert found.best.checkpoint.loads == "as it is"
    assert [getattr(best, name) for name in (*DEGREES, "stages")] == [
        getattr(layout, name) for name in (*DEGREES, "stages")
    ]
    assert best.dp * best.cp < 4
    assert found.best.proved
    assert found.after.checkpoint.loads == "after"
    assert found.after.restarts == 2
    assert found.after.rate > found.best.rate


def test_a_checkpoint_that_reshards_loads_under_any_degrees(make_job):
    case = case_of(make_job)
    usual, free = replanned(case, UNEVEN), replanned(case, UNEVEN, saved="reshardable")
    assert free.after is None
    assert free.best.checkpoint.loads == "as it is"
    assert free.best.rate == pytest.approx(usual.after.rate)


def test_weights_alone_are_never_taken_unasked(make_job):
    case = case_of(make_job, "deepspeed")
    layout = Layout(dp=24, zero_stage=3)
    usual, weights = replanned(case, layout), replanned(case, layout, saved="weights")
    assert usual.best.checkpoint.loads == "after"
    assert usual.best.plan.best.layout.zero_stage == 3
    assert not usual.best.changes
    if weights.best.checkpoint.loads == "weights alone":
        assert "changes the training" in weights.best.changes[0]


def test_what_was_not_looked_up_is_not_known(make_job):
    found = replanned(case_of(make_job, "transformers"), Layout(dp=24, zero_stage=3))
    assert found.best.checkpoint.loads == "not known"


def test_another_batch_is_offered_as_a_change_of_the_training(make_job):
    case = case_of(make_job, "accelerate", batch=24)
    found = replanned(case, Layout(dp=24, zero_stage=3))
    other = found.batch.plan.job.training.global_batch_size
    assert found.best.plan.job.training.global_batch_size == 24
    assert other != 24
    assert found.batch.tokens_per_s > found.best.tokens_per_s
    says = f"changes the training: {other} sequences a step in place of 24"
    assert found.batch.changes == (says,)
    stated = replanned(case, Layout(dp=24, zero_stage=3), batch=other)
    assert stated.best.tokens_per_s >= found.batch.tokens_per_s * (1 - 1e-9)
    assert stated.best.changes == found.batch.changes
    assert stated.batch is None


def test_the_same_cluster_keeps_the_plan_or_betters_it(make_job):
    case = case_of(make_job)
    found = replan(case, PIPELINE, case.job.cluster, Unlimited())
    assert found.best.rate >= 1
    grown = replan(case, UNEVEN, parse_cluster("12x4:h100-sxm"), Unlimited())
    assert grown.best.rate > 1.5


def test_choices_of_the_plan_hold_and_what_a_checkpoint_holds_is_none(make_job):
    fixed = parse_choice("micro_batch_size=1", excluded=False)
    found = replanned(case_of(make_job, fix=(fixed,)), PIPELINE)
    for one in (found.best, found.after):
        assert one.plan.best.layout.micro_batch_size == 1
        assert one.plan.choices == ("--fix micro_batch_size=1",)


def test_links_are_those_of_the_nodes_that_are_used(make_job):
    rates = tuple(tuple(50.0 for _ in range(6)) for _ in range(6))
    links = LinkSpec(nodes=tuple("abcdef"), gb_per_s=rates)
    case = case_of(make_job)
    cluster = case.job.cluster.model_copy(update={"links": links})
    case = case.with_job(case.job.model_copy(update={"cluster": cluster}))
    for lost in ("a", "f"):
        found = replanned(case, PIPELINE, lost=lost)
        for one in (found.best, found.after):
            used = one.plan.job.cluster
            assert used.links is None or lost not in used.links.nodes
            text = json.dumps(plan_json(one.plan), default=str)
            assert chosen_from_json(text)[0].cluster == used


def test_where_nothing_loads_there_is_no_plan(make_job):
    case = case_of(make_job)
    found = replanned(case, Layout(tp=4, pp=3, cp=2, dp=1, sequence_parallel=True), lost="4")
    assert found.best is None
    assert found.after is None
    assert found.anew is not None
    assert found.anew.checkpoint.loads in ("after", "weights alone", "not known")


def test_its_document_is_a_plan_that_is_priced_the_same(make_job):
    case = case_of(make_job)
    found = replanned(case, UNEVEN)
    for one in (found.best, found.after):
        job, layout = chosen_from_json(json.dumps(plan_json(one.plan), default=str))
        again = estimate(job, layout, memory_margin=case.margin)
        assert again.step_time_s == one.plan.best.estimate.step_time_s
        assert one.plan.sources


def test_more_than_forty_replicas_go_on_with_buckets_of_the_same_size(make_job):
    """Megatron sizes them by replicas; where they are stated as they were, the checkpoint loads."""
    job = make_job("small-dense", "6x8:h100-sxm", 480)
    case = Case(job, SearchOptions(search_options="none"))
    found = replanned(case, Layout(dp=48, zero_stage=1)).best
    assert found.checkpoint.loads == "as it is"
    assert found.plan.best.layout.dp == 40
    assert found.plan.job.options.bucket_mb == 48e6 * 4 / 2**20
    assert "bucket_mb=183.105" in found.checkpoint.sentence
    grown = left_of(job.cluster, [])
    small = case.with_job(job.model_copy(update={"cluster": with_nodes(job.cluster, 2)}))
    more = replan(small, Layout(dp=16, zero_stage=1), grown, Unlimited()).best
    assert more.checkpoint.loads == "as it is"
    assert more.plan.best.layout.dp * more.plan.best.layout.cp == 48


def with_nodes(cluster, count):
    group = cluster.groups[0].model_copy(update={"num_nodes": count})
    return cluster.model_copy(update={"groups": (group,)})


def test_speeds_are_those_of_the_time_that_trains_where_failures_are_stated(make_job):
    case = case_of(make_job)
    failures = FailureSpec(mtbf_node_days=2, checkpoint_gb_per_s=1)
    cluster = case.job.cluster.model_copy(update={"failures": failures})
    failing = case.with_job(case.job.model_copy(update={"cluster": cluster}))
    never, found = replanned(case, PIPELINE), replanned(failing, PIPELINE)
    steps = [found.before.estimate.step_time_s, found.best.plan.best.estimate.step_time_s]
    stretches = [stretch_of(found.job), stretch_of(found.best.plan.job)]
    assert stretches[0] > stretches[1] > 1
    assert found.best.rate == pytest.approx(steps[0] * stretches[0] / steps[1] / stretches[1])
    assert found.best.rate > never.best.rate


def test_its_plans_say_what_they_spend_and_which_nodes_are_idle(make_job):
    case = case_of(make_job)
    for one in replanned(case, PIPELINE).plans.values():
        if one:
            assert one.plan.spent.joules_per_step > 0
            assert written(json.dumps(plan_json(one.plan))).searched.num_nodes == 5

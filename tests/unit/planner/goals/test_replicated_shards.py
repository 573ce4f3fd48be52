"""Searches that may shard states over groups of replicas."""

import pytest

from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import Space, parse_choice
from trainplan.planner.space.choices import allowed


@pytest.fixture(name="job_on")
def _job_on(make_job):
    """Runtime -> a job on nodes that are joined by slow links."""

    def make(runtime):
        job = make_job("small-dense", "8x2:a100-sxm-40gb", 16)
        return job.model_copy(update={"runtime": runtime})

    return make


def fixed(*texts):
    return tuple(parse_choice(text, excluded=False) for text in texts)


def groups(job):
    """(ZeRO stage, dp_replicate) of all skeletons without a pipeline."""
    one = Space(context_for(job)).stagings(1)
    return set(zip(one.zero_stage.tolist(), one.dp_replicate.tolist(), strict=True))


def test_an_answer_shards_over_groups_where_that_is_faster(job_on):
    job, zero3 = job_on("fms-fsdp"), fixed("zero_stage=3")
    best = search(job, SearchOptions(fix=zero3, only_answer=True)).best
    whole = search(job, SearchOptions(fix=(*zero3, *fixed("dp_replicate=1")), only_answer=True))
    assert best.layout.dp_replicate > 1
    assert best.estimate.step_time_s < whole.best.estimate.step_time_s


def test_groups_are_tried_where_weights_or_gradients_go_in_every_micro_batch(job_on):
    few = {(0, 1), (1, 1), *((stage, n) for stage in (2, 3) for n in (1, 2, 4, 8, 16))}
    assert groups(job_on("torchtitan")) == few


@pytest.mark.parametrize("text", ["dp_replicate=free", "dp_replicate=2"])
def test_groups_are_tried_under_zero_1_where_asked_for(job_on, text):
    job = allowed(job_on("megatron-lm"), fixed(text))
    assert {n for stage, n in groups(job) if stage == 1} == {1, 2, 4, 8, 16}
    options = SearchOptions(fix=fixed(text, "zero_stage=1", "pp=1"), only_answer=True)
    plan = search(job_on("megatron-lm"), options)
    assert plan.best.layout.dp_replicate == 2 or text.endswith("free")
    assert plan.certificate.optimal


@pytest.mark.parametrize("runtime", ["nanotron", "megatron-deepspeed", "megatron-zero-bubble"])
def test_a_runtime_without_groups_refuses_them(job_on, runtime):
    job = job_on(runtime)
    assert {n for _, n in groups(allowed(job, fixed("dp_replicate=free")))} == {1}
    refusal = "shards over all replicas: leave dp_replicate at 1"
    with pytest.raises(PlanError, match=refusal):
        estimate(job, Layout(dp=16, dp_replicate=2, zero_stage=1))

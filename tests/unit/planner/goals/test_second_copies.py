"""Second copies of sharded weights: what a search finds is what pricing every layout finds."""

from itertools import product

import pytest

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware.cluster import NicSpec, parse_cluster
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.step import price
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import Space, parse_choice
from trainplan.planner.space.choices import broken_rules

HELD = (
    *("zero_stage=3", "dp_replicate=1", "recompute=none", "tiled_loss=false"),
    "offload.optimizer=0",
)


def fixed(*texts):
    return tuple(parse_choice(text, excluded=False) for text in texts)


@pytest.fixture(name="job_on")
def _job_on(make_job):
    """GB/s of a node -> a job on nodes of two GPUs, under a runtime that keeps second copies."""

    def make(gb_per_s, batch=32, runtime="deepspeed"):
        job = make_job("small-dense", "4x2:a100-sxm-40gb", batch)
        (group,) = job.cluster.groups
        nic = NicSpec(per_node=1, gb_per_s=gb_per_s)
        nodes = job.cluster.model_copy(update={"groups": (group.model_copy(update={"nic": nic}),)})
        return job.model_copy(update={"cluster": nodes, "runtime": runtime})

    return make


def every_step(job):
    """Step of every legal layout of the held choices, by its second copy."""
    steps = {}
    sizes = [1, 2, 4, 8]
    for tp, cp, micro, hpz in product(sizes, sizes, [1, 2, 4, 8, 16, 32], [1, 2]):
        if tp * cp > 8 or micro * 8 // (tp * cp) > job.training.global_batch_size:
            continue
        layout = Layout(
            tp=tp, cp=cp, dp=8 // (tp * cp), zero_stage=3, micro_batch_size=micro, hpz=hpz
        )
        table = LayoutTable.of([layout])
        if broken_rules(job, table)[0]:
            continue
        (step,) = price(context_for(job).with_table(table)).step_seconds
        steps[hpz] = min(step, steps.get(hpz, step))
    return steps


@pytest.mark.parametrize("gb_per_s", [2.0, 50.0])
def test_an_answer_has_one_where_that_is_fastest(job_on, gb_per_s):
    job = job_on(gb_per_s)
    steps = every_step(job)
    for texts, fastest in (((), min(steps.values())), *(((f"hpz={n}",), steps[n]) for n in steps)):
        options = SearchOptions(fix=fixed(*HELD, *texts), only_answer=True, whole_cluster=True)
        plan = search(job, options)
        assert plan.certificate.optimal
        assert plan.best.estimate.step_time_s == pytest.approx(fastest)
    assert steps[2] < steps[1]


def test_an_answer_is_like_published_runs_first(job_on):
    """None has a second copy: what is faster with one comes second, and is never the answer."""
    plan = search(job_on(2.0), SearchOptions(fix=fixed(*HELD), whole_cluster=True))
    assert plan.best.layout.hpz == 1
    second = plan.certificate.trusted
    assert second.not_taken.layout.hpz == 2
    assert "no scored run has hpz=on" in second.not_taken.beyond
    assert second.value_without < plan.best.estimate.step_time_s


def test_one_is_tried_for_each_node_or_rack_where_weights_are_sharded(job_on):
    def tried(job):
        some = Space(context_for(job)).stagings(1)
        return set(zip(some.zero_stage.tolist(), some.hpz.tolist(), strict=True))

    racks = job_on(2.0).model_copy(update={"cluster": parse_cluster("36x4:gb200")})
    assert {n for _, n in tried(racks)} == {1, 72}
    assert tried(job_on(2.0)) == {(1, 1), (2, 1), (3, 1), (3, 2)}
    assert {n for _, n in tried(job_on(2.0, runtime="torchtitan"))} == {1}

"""Layers of transformers under DeepSpeed and Accelerate: which layouts run, and what they cost."""

import pytest

from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.step import price
from trainplan.planner.space.choices import broken_rules


@pytest.fixture(name="job_of")
def _job_of(make_job):
    def job(runtime, gpus=8, model="small-dense", **options):
        made = make_job(model, f"1x{gpus}:h100-sxm", 32)
        return made.model_copy(update={"runtime": runtime, "options": RuntimeOptions(**options)})

    return job


def broken(job, **layout):
    (rules,) = broken_rules(job, LayoutTable.of([Layout(**layout)]))
    return {rule.name for rule in rules}


@pytest.mark.parametrize(
    ("runtime", "layout", "rule"),
    [
        ("accelerate", {"dp": 8, "zero_stage": 1}, "fully_shard_alone"),
        ("accelerate", {"dp": 8, "dp_replicate": 8, "zero_stage": 3}, "mesh_has_shards"),
        ("accelerate", {"tp": 8, "zero_stage": 3}, "mesh_has_shards"),
        ("accelerate", {"dp": 4, "pp": 2, "zero_stage": 3}, "configuration_has_no_pipeline"),
        ("deepspeed", {"dp": 4, "pp": 2}, "configuration_has_no_pipeline"),
        ("deepspeed", {"dp": 4, "tp": 2, "sequence_parallel": True}, "plan_cuts_whole_heads"),
        ("deepspeed", {"dp": 2, "tp": 2, "cp": 2}, "sequence_ranks_alone"),
        (
            "arctic-training",
            {"dp": 8, "zero_stage": 3, "dp_replicate": 2},
            "runtime_shards_over_all",
        ),
        (
            "deepspeed",
            {"dp": 8, "zero_stage": 2, "offload": OffloadSpec(optimizer=0.5)},
            "engine_offloads_shards",
        ),
    ],
)
def test_what_no_configuration_says_is_refused(job_of, runtime, layout, rule):
    assert rule in broken(job_of(runtime), **layout)


@pytest.mark.parametrize(
    ("runtime", "layout"),
    [
        ("accelerate", {"dp": 4, "tp": 2, "zero_stage": 3}),
        ("accelerate", {"dp": 4, "cp": 2, "dp_replicate": 2, "zero_stage": 2}),
        ("deepspeed", {"dp": 4, "tp": 2, "zero_stage": 3}),
        ("deepspeed", {"dp": 8, "zero_stage": 2, "offload": OffloadSpec(optimizer=1.0)}),
        ("deepspeed", {"dp": 8, "zero_stage": 3, "offload": OffloadSpec(optimizer=0.5)}),
    ],
)
def test_what_a_configuration_says_runs(job_of, runtime, layout):
    assert broken(job_of(runtime), **layout) == set()


def test_experts_are_no_ranks(job_of):
    for runtime in ("deepspeed", "accelerate"):
        job = job_of(runtime, model="small-moe")
        assert "configuration_has_no_expert_ranks" in broken(job, dp=8, ep=2, zero_stage=3)


def priced(job, **layout):
    table = LayoutTable.of([Layout(**layout)])
    return price(context_of(job, machine_for(job)).with_table(table)).memory


def test_gradients_of_deepspeed_have_16_bits_unless_told(job_of):
    stated = {"dp": 8, "zero_stage": 1}
    half = priced(job_of("deepspeed"), **stated).gradients
    assert priced(job_of("deepspeed", gradient_dtype="fp32"), **stated).gradients == 2 * half


def test_the_optimizer_waits_on_the_host_by_the_ratio(job_of):
    stated = {"dp": 8, "zero_stage": 3}
    whole = priced(job_of("deepspeed"), **stated).optimizer
    half = priced(job_of("deepspeed"), **stated, offload=OffloadSpec(optimizer=0.5)).optimizer
    assert half == pytest.approx(whole / 2)


BOTH = (
    {"dp": 8, "zero_stage": 1},
    {"dp": 8, "zero_stage": 3},
    {"dp": 8, "zero_stage": 2},
    {"cp": 2, "dp": 4, "zero_stage": 3},
)
MEGATRON = (
    {"dp": 4, "pp": 2, "zero_stage": 1},
    {"dp": 2, "tp": 2, "pp": 2, "zero_stage": 1},
    {"dp": 8, "zero_stage": 0},
)


@pytest.mark.parametrize("layout", BOTH)
@pytest.mark.parametrize("runtime", ["deepspeed", "megatron-deepspeed", "arctic-training"])
def test_each_name_of_the_engine_runs_what_it_shards(job_of, runtime, layout):
    job = job_of(runtime)
    assert not broken(job, **layout)
    table = LayoutTable.of([Layout(**layout)])
    assert price(context_of(job, machine_for(job)).with_table(table)).step_seconds[0] > 0


@pytest.mark.parametrize("layout", MEGATRON)
def test_megatron_deepspeed_keeps_its_pipelines_and_tensor_ranks(job_of, layout):
    assert not broken(job_of("megatron-deepspeed"), **layout)

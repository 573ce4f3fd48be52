"""Which kernel of attention a runtime has, and how fast it is."""

import numpy as np
import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.blocks.attention.kernels import kernel_speed
from trainplan.costmodel.blocks.parts import by_its_library, pass_seconds
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels import fused_attention_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.planner.questions.estimation import check_model, estimate


@pytest.mark.parametrize(
    ("gpu", "share"),
    [("a100-sxm-80gb", None), ("h100-sxm", 1.0), ("mi300x", 1.0), ("b200", 0.6)],
)
def test_kernels_of_another_time_are_slower_than_the_best(gpu, share):
    machine = machine_of(parse_cluster(f"1x8:{gpu}"), "bf16")
    second = 1.0 if share is None else share * machine.constants.flash2_on_hopper
    assert kernel_speed(machine, "flash", 4096) == 1.0
    assert kernel_speed(machine, "flash2", 1e12) == pytest.approx(second)
    longer = (4096 + machine.attention_half_length) / (4096 + 484)
    assert kernel_speed(machine, "flash2", 4096) == pytest.approx(second * longer)
    long = second * machine.constants.triton_attention
    assert kernel_speed(machine, "triton", 1e12) == pytest.approx(long)


def test_the_backward_kernel_of_hopper_starts_slower_than_the_forward_one():
    machine = machine_of(parse_cluster("1x8:h100-sxm"), "bf16")

    def ratio(length: int, *, slow_start: bool) -> float:
        pace = {"speed": 1.0, "slow_start": slow_start, "calls": np.zeros(1), "rows": np.ones(1)}
        found = fused_attention_seconds(machine, np.ones(1), length, (128, 128), **pace)
        return float(found.backward[0] / found.forward[0])

    alike = ratio(2048, slow_start=False)
    assert ratio(2048, slow_start=True) == pytest.approx(alike * (2048 + 2500) / (2048 + 600))
    assert ratio(10**9, slow_start=True) == pytest.approx(alike, rel=1e-5)


def test_torch_takes_the_attention_of_cudnn_on_blackwell(make_job):
    job = make_job("llama3-8b", "1x8:b200", 8, 8192).model_copy(update={"runtime": "torchtitan"})
    assert traits_of(job).kernels.attention == "flash"
    stated = job.model_copy(update={"options": RuntimeOptions(attention="flash2")})
    assert traits_of(stated).kernels.attention == "flash2"


def test_triton_reaches_half_its_speed_sooner():
    machine = machine_of(parse_cluster("1x8:a100-sxm-80gb"), "bf16")
    efficiency = {
        length: kernel_speed(machine, "triton", length)
        * length
        / (length + machine.attention_half_length)
        for length in (230.0, 1e12)
    }
    assert efficiency[230.0] / efficiency[1e12] == pytest.approx(0.5)


@pytest.fixture(name="job_of")
def _job_of(make_job):
    def job(runtime, attention=None):
        options = RuntimeOptions(attention=attention)
        made = make_job("small-dense", "1x8:a100-sxm-80gb", seq_length=8192)
        return made.model_copy(update={"runtime": runtime, "options": options})

    return job


def test_llm_foundry_runs_triton_unless_told_otherwise(job_of):
    kernels = {
        stated: traits_of(job_of("llm-foundry-fsdp", stated)).kernels.attention
        for stated in (None, "flash", "flash2")
    }
    assert kernels == {None: "triton", "flash": "triton", "flash2": "flash2"}
    job = job_of("llm-foundry-fsdp")
    slow, fast = (
        estimate(one, Layout(dp=8, zero_stage=3)).terms.attention
        for one in (job, job_of("llm-foundry-fsdp", "flash2"))
    )
    machine = machine_of(job.cluster, "bf16")
    factor = 1 / kernel_speed(machine, "triton", job.training.seq_length)
    assert slow / fast == pytest.approx(factor, rel=0.05)
    assert factor > 1.3


@pytest.mark.parametrize(
    ("runtime", "stated"), [("megatron-lm", "flash2"), ("torchtitan", "triton")]
)
def test_a_kernel_that_a_runtime_lacks_is_refused(job_of, runtime, stated):
    with pytest.raises(SpecError, match=f"attention={stated}: {runtime} has no such kernel"):
        check_model(job_of(runtime, stated))


def test_flash_attention_2_of_torch_is_triton_on_amd_and_products_are_untuned(make_job):
    def layer(runtime, gpu):
        job = make_job("llama3-8b", f"1x8:{gpu}", 8, 8192).model_copy(update={"runtime": runtime})
        return job, traits_of(job).kernels

    assert layer("torchtitan", "mi300x")[1].attention == "triton"
    assert layer("torchtitan", "h100-sxm")[1].attention == "flash2"
    assert layer("nemo", "mi300x")[1].attention == "flash"
    for runtime, gpu, slower in (
        ("torchtitan", "mi300x", True),
        ("nemo", "mi300x", False),
        ("torchtitan", "h100-sxm", False),
    ):
        job, _ = layer(runtime, gpu)
        machine = machine_of(job.cluster, "bf16")
        context = context_of(job, machine).with_table(LayoutTable.of([Layout(dp=8)]))
        seconds = pass_seconds(1, gemm=np.ones(1), attention=np.ones(1))
        found = by_its_library(context, seconds)
        share = machine.constants.untuned_on_amd if slower else 1.0
        assert found.gemm == pytest.approx(1 / share)
        assert found.attention == 1

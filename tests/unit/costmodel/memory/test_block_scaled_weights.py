"""fp8 with scales of blocks keeps two copies of every weight beside its 16 bits."""

import pytest

from tests.megatron_jobs import DENSE, export, values
from trainplan import planner
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout


def peak(make_job, precision, **options):
    settings = {"runtime": "megatron-bridge", "options": RuntimeOptions(**options)}
    job = make_job("llama3-8b", "1x8:h100-sxm", precision=precision).model_copy(update=settings)
    return planner.estimate(job, Layout(dp=8, zero_stage=1)).memory


def test_blocks_take_more_than_bf16_where_one_scale_takes_less(make_job):
    plain, tensor = peak(make_job, "bf16"), peak(make_job, "fp8")
    blocks = peak(make_job, "fp8", fp8_recipe="blockwise")
    primary = peak(make_job, "fp8", fp8_recipe="blockwise", fp8_param_gather=True)
    assert tensor.peak_allocated_bytes < plain.peak_allocated_bytes < blocks.peak_allocated_bytes
    copies = (blocks.pipeline_ranks[0].weights_bytes - plain.pipeline_ranks[0].weights_bytes) / (
        32 * 218.1e6
    )
    assert copies == pytest.approx(2.0, rel=0.01)  # bytes a weight of a layer
    assert primary.peak_allocated_bytes < blocks.peak_allocated_bytes


def test_a_launch_has_the_scaling_of_operands():
    options = RuntimeOptions(fp8_recipe="blockwise")
    training = {"precision": "fp8"}
    assert values(export(DENSE, training=training), "--fp8-recipe") == ("tensorwise",)
    config = export(DENSE, training=training, options=options)
    assert values(config, "--fp8-recipe") == ("blockwise",)

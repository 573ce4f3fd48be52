"""Checkpoints that block the GPU: a layer waits for the copy of the one before, if it has any."""

from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.planner.questions import estimate

FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def step_seconds(make_job, runtime, checkpoints):
    job = make_job("llama3.1-8b", "1x1:h200-sxm", 1, 1 << 16)
    offload = OffloadSpec(optimizer=1.0, parameters="cpu", checkpoints=checkpoints)
    layout = Layout(**FULL, zero_stage=3, tiled_loss=True, offload=offload)
    stated = {"runtime": runtime, "options": RuntimeOptions(liger="0.6")}
    return estimate(job.model_copy(update=stated), layout).step_time_s


def test_copies_that_block_take_more_time_than_copies_beside(make_job):
    """The embedding, which keeps nothing, runs before the first layer."""
    blocking, alongside = (
        step_seconds(make_job, runtime, 1.0) for runtime in ("arctic-training", "deepspeed")
    )
    without = step_seconds(make_job, "arctic-training", 0.0)
    assert without < blocking
    assert alongside < blocking

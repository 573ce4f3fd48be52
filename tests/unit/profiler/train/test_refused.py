"""What megatron-core cannot train here is named before anything starts."""

import pytest

from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.profiler.train.request import TrainingRequest
from trainplan.profiler.train.trainers import refusal


def wanted(name="llama3-8b", layout=None, **training):
    stated = {"seq_length": 64, "global_batch_size": 8, "precision": "fp32", **training}
    model = preset(name).model_copy(update={"rope_scaling": None})
    job = Job(model=model, training=TrainingSpec(**stated), cluster=parse_cluster("1x8:h100-sxm"))
    return TrainingRequest(
        trainer="megatron-core", job=job, layout=layout or Layout(zero_stage=0), steps=1
    )


def test_a_plain_decoder_is_run():
    for name in ("llama3-8b", "gpt2", "mixtral-8x7b", "qwen3-30b-a3b", "qwen2.5-7b"):
        assert refusal(wanted(name)) is None, name


@pytest.mark.parametrize(
    ("request_", "written"),
    [
        (wanted("deepseek-v3"), "mla"),
        (wanted("gemma2-9b"), "norm_position"),
        (wanted("gpt-neox-20b"), "parallel_residual"),
        (wanted("nemotron-3-nano-30b-a3b"), "ssm"),
        (
            wanted("mixtral-8x7b", Layout(tp=2, dp=2, sequence_parallel=True)),
            "gradients of experts",
        ),
        (wanted("mixtral-8x7b", Layout(tp=2, etp=2)), "without sequence parallelism"),
        (wanted(layout=Layout(cp=2)), "cp > 1"),
        (wanted(layout=Layout(dp=2, zero_stage=3)), "ZeRO-3"),
        (wanted(layout=Layout(pp=2, schedule="zb-h1")), "zb-h1"),
        (wanted(precision="fp8"), "fp8"),
        (wanted(optimizer="muon"), "muon"),
        (wanted(layout=Layout(dp=2), optimizer="sgd"), "sgd with ZeRO-1"),
        (wanted(layout=Layout(dp=3)), "global batch"),
        (wanted(layout=Layout(offload={"optimizer": 0.5})), "offload"),
        (
            wanted(layout=Layout(recompute="selective", recompute_modules=("moe_act",))),
            "moe_act",
        ),
    ],
)
def test_what_needs_another_library_or_a_gpu_is_refused_by_name(request_, written):
    assert written in (refusal(request_) or "")

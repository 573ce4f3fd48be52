"""Launches of the zero-bubble fork: its schedules, and where its validator stops."""

import pytest

from tests.launches import launch
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_zero_bubble.read import MEGATRON_ZERO_BUBBLE

BASE = (
    "--num-layers 30 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
    "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 32 --fp16 "
    "--vocab-size 32000 --untie-embeddings-and-output-weights --tensor-model-parallel-size 2 "
    "--pipeline-model-parallel-size 4 --use-legacy-models --transformer-impl local "
    "--allow-padding-num-layers "
)
RUNTIME = "--enable-zb-runtime "


def read(flags, base=BASE):
    request = Request(parse_cluster("1x8:h100-sxm"), strict=True)
    return MEGATRON_ZERO_BUBBLE.read(launch(base + flags), request)


@pytest.mark.parametrize(
    ("flags", "schedule", "layers"),
    [
        ("--no-pre-communication-optimization", "1f1b", (7, 8, 8, 7)),
        (RUNTIME + "--enable-zero-bubble --zero-bubble-max-pending-backward 4", "zb-1p", None),
        (RUNTIME + "--enable-zero-bubble --zero-bubble-max-pending-backward 8", "zb-2p", None),
        (RUNTIME + "--zero-bubble-v-schedule", "zb-v", (3, 4, 4, 4, 4, 4, 4, 3)),
        (
            RUNTIME + "--zero-bubble-v-schedule --zero-bubble-v-schedule-mem-setup min",
            "v-min",
            None,
        ),
    ],
)
def test_its_schedules_and_padded_ends_are_read(flags, schedule, layers):
    reading = read(flags)
    assert reading.legal, reading.problems
    assert reading.layout.schedule == schedule
    if layers and reading.layout.stages:
        assert tuple(stage.layers for stage in reading.layout.stages) == layers
    assert reading.job.runtime == "megatron-zero-bubble"


@pytest.mark.parametrize(
    ("flags", "base", "cause"),
    [
        (
            RUNTIME + "--enable-zero-bubble --enable-optimizer-post-validation",
            BASE.replace("--fp16", "--bf16"),
            "post_validation_needs_fp16",
        ),
        ("", BASE, "pre_communication_needs_runtime"),
        (
            "--no-pre-communication-optimization",
            BASE.replace("--untie-embeddings-and-output-weights ", ""),
            "tied_embeddings",
        ),
        (
            RUNTIME + "--zero-bubble-v-schedule",
            BASE.replace("--num-layers 30", "--num-layers 20"),
            "v_needs_even_stages",
        ),
        (
            RUNTIME + "--enable-zero-bubble --use-distributed-optimizer --overlap-grad-reduce",
            BASE,
            "split_beside_overlap",
        ),
        (
            RUNTIME + "--enable-zero-bubble",
            BASE.replace("pipeline-model-parallel-size 4", "pipeline-model-parallel-size 1"),
            "zero_bubble_needs_pipeline",
        ),
        (RUNTIME + "--fp8-recipe tensorwise", BASE, "unknown_flag"),
    ],
)
def test_where_its_validator_stops_is_said(flags, base, cause):
    reading = read(flags, base)
    assert not reading.legal
    assert cause in [problem.cause for problem in reading.problems if problem.verdict == "illegal"]


def test_an_option_that_is_not_stated_is_no_refusal():
    words = BASE.replace("--untie-embeddings-and-output-weights ", "")
    request = Request(parse_cluster("1x8:h100-sxm"))
    reading = MEGATRON_ZERO_BUBBLE.read(launch(words + RUNTIME + "--log-ours"), request)
    assert reading.legal is None
    assert {"tied_embeddings", "unknown_flag"} <= {one.cause for one in reading.problems}


def test_a_launch_without_its_options_is_of_megatron_lm():
    plain = launch(BASE.replace("--allow-padding-num-layers ", ""))
    assert not MEGATRON_ZERO_BUBBLE.recognises(plain)
    assert MEGATRON_LM.recognises(plain)

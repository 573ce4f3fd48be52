"""Weight gradients behind what sends the gradient of an input."""

import pytest

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.step.estimate import (
    delayed_weight_seconds,
    message_seconds_of,
    p2p_seconds,
)
from trainplan.planner import estimate
from trainplan.planner.space.choices import broken_rules

PIPELINE = Layout(pp=4, dp=8, ep=8, vpp=2, schedule="interleaved", zero_stage=1)


def job(**options):
    return Job(
        model=preset("qwen3-30b-a3b"),
        training=TrainingSpec(seq_length=4096, global_batch_size=256),
        cluster=cluster_of("4x8:h100-sxm"),
        runtime="megatron-bridge",
        options=RuntimeOptions(**options),
    )


def on(layout=PIPELINE, **options):
    return context_for(job(**options)).with_table(LayoutTable.of([layout]))


def test_half_of_the_messages_hide_as_far_as_a_mixer_lasts():
    plain, delayed = on(overlap_moe_a2a=True), on(overlap_moe_a2a=True, delay_wgrad=True)
    sent, weights = message_seconds_of(delayed)[0], delayed_weight_seconds(delayed)[0]
    assert p2p_seconds(plain)[0] == sent
    assert p2p_seconds(delayed)[0] == pytest.approx(sent - min(sent, weights) / 2)
    q, kv, hidden = 32 * 128, 4 * 128, 2048  # qwen3-30b-a3b
    flop = 2 * 4096 * (hidden * (q + 2 * kv) + q * hidden)
    peak = delayed.machine.peak_flop_per_second
    assert weights == pytest.approx(flop / peak, rel=1e-3)


def test_a_step_is_no_slower_and_holds_one_more_gradient():
    both = {"overlap_moe_a2a": True}
    plain, delayed = (estimate(job(**both, delay_wgrad=value), PIPELINE) for value in (False, True))
    assert estimate(job(**both), PIPELINE) == plain
    assert delayed.step_time_s < plain.step_time_s
    assert delayed.terms.ep_comm == plain.terms.ep_comm
    assert delayed.memory.peak_allocated_bytes >= plain.memory.peak_allocated_bytes


def test_without_a_pipeline_it_takes_as_long_as_it_was_measured_to():
    """Qwen3-30B on 16 H100, ep 16: 31.2 s with it and without (Megatron-Bridge, PR 3862)."""
    alone = Layout(dp=32, ep=16, zero_stage=1)
    found = [
        estimate(job(overlap_moe_a2a=True, delay_wgrad=value), alone).step_time_s
        for value in (None, True)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("options", "legal"),
    [
        ({"overlap_moe_a2a": True}, True),
        ({}, False),
        ({"overlap_moe_a2a": False}, False),
        ({"overlap_moe_a2a": True, "cuda_graph": "partial"}, True),
    ],
)
def test_it_needs_the_exchange_overlapped(options, legal):
    broken = broken_rules(job(delay_wgrad=True, **options), LayoutTable.of([PIPELINE]))[0]
    assert ("delayed_weights_need_the_overlap" in [one.name for one in broken]) != legal

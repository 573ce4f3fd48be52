"""Shared experts on a stream of their own, beside the exchange of tokens."""

import numpy as np
import pytest

from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.blocks.exchanges import overlapped_with_shared
from trainplan.costmodel.blocks.parts import Part, pass_seconds, shapes
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.costmodel.presets.presets import preset
from trainplan.planner import estimate
from trainplan.planner.space.choices import broken_rules

LAYOUT = Layout(
    dp=32, ep=32, zero_stage=1, **{"recompute": "selective"}, recompute_modules=("moe_act",)
)


def job(model="deepseek-v2-lite", runtime="megatron-lm", **options):
    return Job(
        model=preset(model),
        training=TrainingSpec(seq_length=4096, global_batch_size=256),
        cluster=cluster_of("4x8:h100-sxm"),
        runtime=runtime,
        options=RuntimeOptions(**options),
    )


def layers(layout=LAYOUT, **options):
    context = context_for(job(**options))
    return blocks(context.with_table(LayoutTable.of([layout]))).layers


def test_each_half_hides_no_more_of_an_exchange_than_it_lasts():
    """Of two products and their activation the first two parts run beside the dispatch."""
    on = context_for(job(overlap_shared_experts=True)).with_table(LayoutTable.of([LAYOUT]))
    columns, one, none = shapes(on), np.ones(1), np.zeros(1)
    share = columns.machine.constants.expert_overlap_contention
    own = pass_seconds(1, gemm=3 * one, elementwise=one)  # a gate: two products up, one down
    shared = Part(own, own + own, none, none, (), pass_seconds(1))
    for exchange in (0.5, 2.0, 9.0):
        both = pass_seconds(1, ep_comm=2 * exchange * one)
        routed = Part(both, both, none, none, (), pass_seconds(1))
        left = overlapped_with_shared(columns, routed, shared, exchange * one)
        for times, seconds in ((1, left.forward), (2, left.backward)):
            exposed = sum(max(share * exchange, exchange - times * own) for own in (3, 1))
            assert seconds.ep_comm[0] == pytest.approx(exposed)
    plain = shapes(context_for(job()).with_table(LayoutTable.of([LAYOUT])))
    assert overlapped_with_shared(plain, routed, shared, one) is routed


def test_layers_with_shared_experts_wait_less_in_both_passes_and_hold_the_same():
    dense, experts = layers()
    same, less = layers(overlap_shared_experts=True)
    assert np.array_equal(same.forward.total, dense.forward.total)
    for one, other in ((less.forward, experts.forward), (less.backward, experts.backward)):
        assert 0 < one.ep_comm < other.ep_comm
        assert (
            np.array_equal(one.gemm.round(9), other.gemm.round(9)) or one.gemm <= other.gemm * 1.05
        )
    assert np.array_equal(less.saved_bytes, experts.saved_bytes)
    assert less.recompute_forward.ep_comm == less.forward.ep_comm, "a repeated pass overlaps, too"


def test_off_is_as_today_and_one_rank_has_nothing_to_hide():
    assert estimate(job(), LAYOUT) == estimate(job(overlap_shared_experts=False), LAYOUT)
    alone = LAYOUT.model_copy(update={"ep": 1})
    assert estimate(job(), alone).step_time_s == (
        estimate(job(overlap_shared_experts=True), alone).step_time_s
    )


@pytest.mark.parametrize(
    ("model", "options", "layout"),
    [
        ("deepseek-v2-lite", {}, {"recompute_modules": ("shared_experts",)}),
        ("deepseek-v2-lite", {"overlap_moe_a2a": True}, {}),
        ("nemotron-3-super", {}, {}),
    ],
)
def test_what_the_runtime_stops_at_is_refused(model, options, layout):
    """Repeated alone, taken apart with all else, or in a latent width."""
    table = LayoutTable.of([LAYOUT.model_copy(update=layout)])
    stated = job(model, overlap_shared_experts=True, **options)
    assert "shared_experts_beside_exchange" in [one.name for one in broken_rules(stated, table)[0]]
    assert not any(
        one.name == "shared_experts_beside_exchange"
        for one in broken_rules(job(model, **options), table)[0]
    )

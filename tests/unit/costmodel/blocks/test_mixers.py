"""What layers cost whose mixer is no attention, and layers of one half."""

from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

from tests.conftest import SMALL_DENSE, SMALL_MOE
from trainplan.costmodel.architecture.layers import (
    ConvolutionSpec,
    IndexerSpec,
    LinearAttentionSpec,
    Mixer,
    SsmSpec,
)
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.blocks.mixers import MIXER_PARTS
from trainplan.costmodel.blocks.mixers.carried import CHUNK_PRODUCTS_SPEED, core_seconds
from trainplan.costmodel.blocks.parts import PassSeconds
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import layer_rank_params
from trainplan.costmodel.mixers.products import CoreProduct
from trainplan.costmodel.model.params import layer_params
from trainplan.costmodel.runtimes.registry import traits_of

LENGTH = 2048
SSM = SsmSpec(num_heads=32, head_dim=64, state_size=128, num_groups=8, chunk_size=128)
DELTA = LinearAttentionSpec(num_key_heads=8, num_value_heads=16, key_head_dim=64, value_head_dim=64)
SIZES = {
    "full_attention": {},
    "bidirectional_attention": {},
    "sliding_attention": {"sliding_window": 512},
    "chunked_attention": {"attention_chunk_size": 512},
    "sparse_attention": {"indexer": IndexerSpec(num_heads=8, head_dim=64, top_k=512)},
    "linear_attention": {"linear_attention": DELTA},
    "mamba": {"ssm": SSM},
    "attention_and_mamba": {"ssm": SSM},
    "convolution": {"convolution": ConvolutionSpec(kernel=3)},
    "none": {},
}


def model(mixer, base=SMALL_DENSE, **fields):
    return ModelSpec(**(base.model_dump() | {"mixer": mixer} | SIZES[mixer] | fields))


def layer(spec, *layouts, cluster="1x8:h100-sxm", runtime="megatron-lm", **training):
    sizes = {"seq_length": LENGTH, "global_batch_size": 16} | training
    job = Job(
        model=spec,
        training=TrainingSpec(**sizes),
        cluster=parse_cluster(cluster),
        runtime=runtime,
    )
    machine = machine_of(job.cluster, job.training.precision)
    table = LayoutTable.of(layouts or [Layout()])
    return blocks(Candidates(job, machine, traits_of(job), table)).layers[0]


def busy(seconds):
    """All terms but the wait for the host, whose halves overlap otherwise, and the clock."""
    return {
        field.name: getattr(seconds, field.name)
        for field in fields(PassSeconds)
        if field.name in ("elementwise", "tp_comm", "cp_comm")
    }


@pytest.mark.parametrize("mixer", get_args(Mixer))
def test_every_mixer_has_a_price_that_tensor_parallelism_lowers(mixer):
    assert mixer in MIXER_PARTS
    one = layer(model(mixer), Layout(), Layout(tp=4, sequence_parallel=True))
    for column in (one.saved_bytes, one.forward.gemm, one.backward.gemm):
        assert 0 < column[1] < column[0]
    assert one.forward.tp_comm[0] == 0 < one.forward.tp_comm[1]


@pytest.mark.parametrize("mixer", [m for m in SIZES if m not in ("none",)])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_mixer_and_a_feed_forward_alone_are_the_layer_of_both(mixer, sequence_parallel):
    layout = Layout(tp=2, sequence_parallel=sequence_parallel)
    whole = layer(model(mixer), layout)
    halves = [layer(model(mixer, feed_forward="none"), layout), layer(model("none"), layout)]
    for name in ("forward", "backward"):
        both = busy(getattr(whole, name))
        for term, seconds in both.items():
            parts = sum(busy(getattr(half, name))[term] for half in halves)
            assert parts == pytest.approx(seconds), term
    assert sum(half.saved_bytes for half in halves) == pytest.approx(whole.saved_bytes)


def test_mamba_keeps_its_projected_input_its_scan_and_its_normed_output():
    alone = layer(model("mamba", feed_forward="none"))
    inner, groups, heads = 32 * 64, 2 * 8 * 128, 32
    kept = (2 * inner + groups + heads) + inner + inner
    residual = 2 * 1024  # input and output of the norm before it
    assert alone.saved_bytes[0] == LENGTH * (2 * (residual + kept) + 4 * 8)


def test_the_delta_rule_keeps_what_its_kernels_keep():
    alone = layer(model("linear_attention", feed_forward="none"))
    key, value, repeated, heads = 8 * 64, 16 * 64, 16 * 64, 16
    projected = 2 * key + 2 * value + 2 * heads
    prepared = 2 * key + 2 * repeated + value + heads * 64  # normed, repeated, values, inverses
    gated = 4 * value  # core, norm, gate, output
    kept = 2 * (projected + prepared + gated + 2 * 1024) + 4 * 2 * heads
    assert alone.saved_bytes[0] == LENGTH * kept


def test_a_gated_norm_that_is_made_again_drops_its_output_alone():
    wide = {"micro_batch_size": 16}  # the GPU is slower than the host
    whole = layer(model("linear_attention"), Layout(**wide), Layout(tp=2, **wide))
    [norm] = [module for module in whole.modules if module.name == "gdn_norm_out"]
    output = 16 * LENGTH * 2 * 16 * 64
    assert list(norm.dropped_bytes) == [output, output / 2]
    assert 0 < norm.seconds[1] < norm.seconds[0]


def test_a_convolution_keeps_six_tensors_as_wide_as_the_model():
    alone = layer(model("convolution", feed_forward="none"))
    assert alone.saved_bytes[0] == LENGTH * 2 * (6 + 2) * 1024


def test_products_of_a_core_run_at_their_share_of_attentions_speed():
    machine = machine_of(parse_cluster("1x8:h100-sxm"), "bf16")
    products = (CoreProduct(4, 32, 16), CoreProduct(2, 8, 8, again=True))
    found = core_seconds(machine, products, np.array([10.0]))
    speed = machine.half.peak_flop_per_second * machine.attention_max_efficiency
    first, second = 2 * 4 * 32 * 16, 2 * 2 * 8 * 8
    each = 10 / (CHUNK_PRODUCTS_SPEED * speed)
    assert found.forward == pytest.approx(each * (first + second))
    assert found.backward == pytest.approx(each * (2 * first + 3 * second))


def test_the_core_of_mamba_costs_each_token_the_same_at_every_length():
    short, long = (layer(model("mamba"), seq_length=n) for n in (2048, 8192))
    assert 4 * short.saved_bytes == pytest.approx(long.saved_bytes)
    ratio = long.forward.attention / short.forward.attention
    assert 3.9 < ratio < 4.1  # the clock moves with what else runs


def test_context_ranks_exchange_the_heads_of_mamba():
    layouts = [Layout(), Layout(cp=2)]
    one, two = (
        layer(model("mamba"), layout, seq_length=n)
        for layout, n in zip(layouts, (2048, 4096), strict=True)
    )
    assert one.forward.cp_comm == 0 < two.forward.cp_comm
    assert one.saved_bytes == two.saved_bytes


def test_an_indexer_adds_its_queries_its_key_and_what_it_picked():
    sparse, full = (layer(model(m)) for m in ("sparse_attention", "full_attention"))
    kept = 2 * (8 * 64 + 64 + 8) + 4 * 512
    assert sparse.saved_bytes - full.saved_bytes == LENGTH * kept
    shared = layer(model("sparse_attention", shares_index=True))
    assert shared.saved_bytes == full.saved_bytes
    assert shared.forward.attention < full.forward.attention


def test_a_gate_on_the_output_keeps_itself_and_the_product():
    gated, plain = (
        layer(model("full_attention", attention_output_gate=gate))
        for gate in ("elementwise", "none")
    )
    assert gated.saved_bytes - plain.saved_bytes == LENGTH * 2 * 2 * 1024
    assert gated.forward.gemm > plain.forward.gemm
    assert gated.forward.elementwise > plain.forward.elementwise


def test_experts_in_a_latent_width_send_and_multiply_fewer_columns():
    experts = SMALL_MOE.moe.model_copy(update={"latent_size": 256})
    spec = SMALL_MOE.model_copy(update={"moe": experts})
    layout = Layout(ep=8, dp=8)
    kind = next(i for i, one in enumerate(spec.kinds) if one.feed_forward == "moe")
    found, wide = (blocks(candidates(one, layout)).layers[kind] for one in (spec, SMALL_MOE))
    assert found.forward.ep_comm < wide.forward.ep_comm
    assert found.saved_bytes < wide.saved_bytes


def candidates(spec, layout):
    job = Job(
        model=spec,
        training=TrainingSpec(seq_length=LENGTH, global_batch_size=16),
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime="megatron-lm",
    )
    machine = machine_of(job.cluster, "bf16")
    return Candidates(job, machine, traits_of(job), LayoutTable.of([layout]))


@pytest.mark.parametrize("mixer", get_args(Mixer))
def test_ranks_hold_a_layer_whole_or_its_divided_weights_in_parts(mixer):
    spec = model(mixer)
    table = LayoutTable.of([Layout(), Layout(tp=2)])
    one, two = layer_rank_params(spec.kinds[0], table)[0]
    assert one == layer_params(spec.kinds[0])
    assert one / 2 < two < one

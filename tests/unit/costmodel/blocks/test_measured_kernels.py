"""Kernels of mixers, and what they were measured at."""

import numpy as np
import pytest

from trainplan.costmodel.architecture.layers import LinearAttentionSpec, SsmSpec
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.blocks.attention.core import SELECTED_MORE, SELECTED_SPEED
from trainplan.costmodel.blocks.mixers.carried import CONVOLUTION_RATE, chunk_rate
from trainplan.costmodel.blocks.mixers.convolutions import mamba_sizes
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.kernels.memory_bound import elementwise_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.mixers.products import linear_attention_products
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.step import explicit

MAMBA = ModelSpec(
    num_hidden_layers=48,
    hidden_size=2048,
    intermediate_size=4096,
    num_attention_heads=64,
    num_key_value_heads=64,
    head_dim=64,
    vocab_size=50288,
    max_position_embeddings=4096,
    position_embedding="none",
    tie_word_embeddings=True,
    mixer="mamba",
    feed_forward="none",
    ssm=SsmSpec(num_heads=64, head_dim=64, state_size=128, num_groups=1, chunk_size=256),
)
"""Source: state-spaces/mamba issue 904."""


def priced(model, gpu, layout, **training):
    cluster = parse_cluster(f"1x1:{gpu}")
    sizes = {"global_batch_size": 4, "seq_length": 4096, "precision": "bf16"} | training
    job = Job(model=model, training=TrainingSpec(**sizes), cluster=cluster, runtime="megatron-lm")
    machine = machine_of(cluster, job.training.precision)
    return context_of(job, machine).with_table(LayoutTable.of([layout]))


@pytest.mark.parametrize(
    ("gpu", "tflops", "within"),
    [("a100-sxm-80gb", 102.5, 0.2), ("h200-sxm", 239.2, 0.1), ("gb200", 360.4, 0.1)],
)
def test_a_mamba_2_trains_as_fast_as_measured(gpu, tflops, within):
    step = explicit(priced(MAMBA, gpu, Layout(micro_batch_size=4)))[0].step_time_s
    measured = 4 * 4096 * 6 * 1.3437573e9 / (tflops * 1e12)
    assert step == pytest.approx(measured, rel=within)


@pytest.mark.parametrize(
    ("gpu", "milliseconds"), [("b200", 3.21), ("gb200", 3.06), ("gb300", 2.94), ("b300", 3.07)]
)
def test_chunks_of_a_delta_rule_take_as_long_as_measured_on_blackwell(gpu, milliseconds):
    machine = machine_of(parse_cluster(f"1x1:{gpu}"), "bf16")
    heads, width, chunk, tokens = 64, 128, 64, 32768
    sizes = {"num_key_heads": 16, "num_value_heads": heads}
    spec = LinearAttentionSpec(key_head_dim=width, value_head_dim=width, **sizes)
    flop = sum(product.flop for product in linear_attention_products(spec, 8192))
    moved = heads * (12 * width + 2 * chunk + 2 * width * width / chunk)
    seconds = tokens * flop / chunk_rate(machine)
    seconds += elementwise_seconds(machine, np.array(2.0 * tokens * moved))
    assert seconds * 1e3 == pytest.approx(milliseconds, rel=0.1)


def test_no_gpu_is_faster_in_chunks_than_hopper_and_slower_ones_stay_slower():
    h100, b200, a100 = (
        chunk_rate(machine_of(parse_cluster(f"1x1:{gpu}"), "bf16"))
        for gpu in ("h100-sxm", "b200", "a100-sxm-80gb")
    )
    assert h100 == pytest.approx(b200, rel=0.01)
    assert a100 < 0.4 * h100


@pytest.mark.parametrize(
    ("keys", "milliseconds"), [(128, 0.560), (512, 1.233), (1024, 2.155), (2048, 4.019)]
)
def test_gradients_of_listed_keys_take_as_long_as_measured(keys, milliseconds):
    machine = machine_of(parse_cluster("1x1:b200"), "bf16")
    rate = SELECTED_SPEED * machine.attention_max_efficiency * machine.half.peak_flop_per_second
    flop = 2 * 4096 * 64 * (keys + SELECTED_MORE) * 5 * 512
    assert flop / rate * 1e3 == pytest.approx(milliseconds, rel=0.03)


def test_the_backward_pass_of_mamba_moves_what_its_kernels_do():
    model = MAMBA.model_copy(
        update={"ssm": SsmSpec(num_heads=2, head_dim=4, state_size=16, num_groups=1, chunk_size=8)}
    )
    inner, groups, states, scores = 8, 2 * 16, 8 * 16 / 8, 8
    moved = 16 * inner + 17 * states + 12 * scores + 19 * groups / 2 + 20 * 2
    sizes = mamba_sizes(model, 4096)
    assert sizes.moved_backward == moved
    assert sizes.convolved == (2 * (inner + groups), 5 * (inner + groups))


def test_a_convolution_is_no_faster_than_its_kernel():
    one = blocks(priced(MAMBA, "gb200", Layout())).layers[0]
    narrow = MAMBA.ssm.model_copy(update={"num_groups": 64})
    wide = blocks(priced(MAMBA.model_copy(update={"ssm": narrow}), "gb200", Layout())).layers[0]
    added = 2 * 2 * 63 * 2 * 128 * 4096 / CONVOLUTION_RATE
    assert (wide.forward.elementwise - one.forward.elementwise)[0] > added


def test_halves_that_mix_streams_move_and_keep_them():
    one = preset("llama3-8b")
    four = one.model_copy(update={"residual_streams": 4})
    plain, mixed = (blocks(priced(m, "gb200", Layout())).layers[0] for m in (one, four))
    machine = machine_of(parse_cluster("1x1:gb200"), "bf16")
    passes = 2 * (8 * 4 + 4) - 10
    moved = elementwise_seconds(machine, np.array(2.0 * 4096 * 4096 * passes))
    found = mixed.forward.elementwise - plain.forward.elementwise
    assert found[0] == pytest.approx(moved, rel=0.01)
    assert (mixed.saved_bytes - plain.saved_bytes)[0] == 2 * 4096 * 4096 * 4 * 2


def test_layers_in_16_bits_cost_what_they_cost_in_a_training_of_16_bits():
    model = preset("llama3-8b")
    wide = model.model_copy(update={"wide_products": True})
    low, kept, half = (
        blocks(priced(m, "gb200", Layout(), precision=precision)).layers[0]
        for m, precision in ((model, "mxfp8"), (wide, "mxfp8"), (model, "bf16"))
    )
    assert kept.forward.gemm == pytest.approx(half.forward.gemm)
    assert kept.saved_bytes == half.saved_bytes
    assert low.forward.gemm < 0.7 * kept.forward.gemm

"""Passes over memory that layers without fused kernels make beside their products."""

import numpy as np
import pytest

from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels.attention import unfused_attention_seconds
from trainplan.costmodel.kernels.memory_bound import elementwise_seconds, streaming_bytes_per_second
from trainplan.costmodel.kernels.products import Product, product_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes import traits_of

TABLE = LayoutTable.of([Layout(tp=tp) for tp in (1, 2, 4)])
BIASES = {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True}
ROWS, LENGTH, WIDTH = np.array([8192.0]), 2048, 128


@pytest.fixture
def job_of(make_job):
    def make(runtime, **model):
        job = make_job("small-dense", "1x8:a100-sxm-80gb", precision="bf16")
        changed = job.model.model_copy(update=model)
        return job.model_copy(update={"runtime": runtime, "model": changed})

    return make


@pytest.mark.parametrize(
    ("cluster", "kernel"),
    [("1x8:v100-sxm-32gb", "unfused"), ("1x8:t4", "unfused"), ("1x8:a100-sxm-80gb", "flash")],
)
def test_gpus_before_bf16_have_no_fused_core_unless_the_user_has_one(make_job, cluster, kernel):
    job = make_job("small-dense", cluster, precision="fp16")
    assert traits_of(job).kernels.attention == kernel
    stated = job.model_copy(update={"options": RuntimeOptions(attention="flash")})
    assert traits_of(stated).kernels.attention == "flash"


def backward(job):
    found = blocks(context_of(job, machine_for(job)).with_table(TABLE))
    return found.layers[0].backward.elementwise


def test_a_bias_costs_one_read_of_the_gradient_of_its_output(job_of):
    job, plain = job_of("torch-eager", **BIASES), job_of("torch-eager")
    model, tp = job.model, TABLE.tp
    heads = model.num_attention_heads + 2 * model.num_key_value_heads
    columns = (heads * model.head_dim + 2 * model.intermediate_size) / tp + 2 * model.hidden_size
    read = 2 * job.training.seq_length * columns / streaming_bytes_per_second(machine_for(job))
    # ten bytes of each bias are accumulated, against two of each of 2,048 tokens
    assert backward(job) - backward(plain) == pytest.approx(read, rel=0.01)


def test_fused_kernels_sum_biases_inside_a_product(job_of):
    assert (backward(job_of("megatron-lm", **BIASES)) == backward(job_of("megatron-lm"))).all()


def test_unfused_layers_of_2021_have_biases_unless_a_unit_gates(job_of):
    for gated in (True, False):
        stated = job_of("megatron-zero-bubble", gated_mlp=gated, **BIASES)
        silent = job_of("megatron-zero-bubble", gated_mlp=gated)
        assert (backward(stated) > backward(silent)).all() == gated
        assert (backward(stated) == backward(silent)).all() == (not gated)


def attention(machine, *, dropout=False):
    return unfused_attention_seconds(machine, ROWS, LENGTH, (WIDTH, WIDTH), dropout=dropout)


def test_a_causal_softmax_reads_half_of_what_it_writes(job_of):
    machine = machine_for(job_of("megatron-lm"))
    found = attention(machine)
    scores = Product(ROWS, ROWS * 0 + LENGTH, ROWS * 0 + WIDTH)
    context = Product(ROWS, ROWS * 0 + WIDTH, ROWS * 0 + LENGTH)
    products = sum(product_seconds(machine, machine.half, p, 2) for p in (scores, context))
    share = machine.constants.softmax_passes
    forward = elementwise_seconds(machine, 2 * ROWS * (1.5 * share * LENGTH + 2 * WIDTH))
    back = elementwise_seconds(machine, 2 * ROWS * (2 * share * LENGTH + 6 * WIDTH))
    assert found.forward == pytest.approx(products + forward)
    assert found.backward == pytest.approx(2 * products + back)


def test_dropout_costs_the_same_either_way(job_of):
    machine = machine_for(job_of("megatron-lm"))
    plain, masked = attention(machine), attention(machine, dropout=True)
    assert masked.forward - plain.forward == pytest.approx(masked.backward - plain.backward)
    assert (masked.forward > plain.forward).all()


@pytest.mark.parametrize(("gated", "share"), [(True, 1.0), (False, 0.6)])
def test_single_kernels_move_more_where_mlps_have_a_gate(make_job, gated, share):
    job = make_job("small-dense", "1x8:a100-sxm-80gb").model_copy(update={"runtime": "accelerate"})
    model = job.model.model_copy(update={"gated_mlp": gated})
    job = job.model_copy(update={"model": model})
    table = LayoutTable.of([Layout(dp=8)])
    found = shapes(context_of(job, machine_for(job)).with_table(table))
    more = found.machine.constants.eager_elementwise - 1
    assert found.eager == pytest.approx(1 + share * more)

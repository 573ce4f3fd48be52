"""Seconds of the operations of one GPU, by hand: what is multiplied, moved and launched."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.blocks.attention.core import attention_part
from trainplan.costmodel.blocks.feed_forward.moe import moe_part
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.kernels.attention import fused_attention_seconds, unfused_attention_seconds
from trainplan.costmodel.kernels.memory_bound import elementwise_seconds
from trainplan.costmodel.kernels.products import Product, linear_seconds, product_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.shards.cuts import padded_vocab

H100 = machine_of(parse_cluster("1x8:h100-sxm"), "bf16")
ONE = np.ones(1)
M, N, K = 1000.0, 300.0, 70.0
PRODUCT = Product(M * ONE, N * ONE, K * ONE)


def curve(fixed=0.0, flop=0.0, moved=0.0, element_bytes=2):
    """Products of which only some part costs anything."""
    return replace(
        H100.linear,
        fixed_seconds=fixed,
        flop_factor=flop,
        byte_factor=moved,
        element_bytes=element_bytes,
    )


@pytest.mark.parametrize("output_bytes", [2, 4])
def test_a_product_reads_both_operands_and_writes_its_output(output_bytes):
    found = product_seconds(H100, curve(moved=1.0), PRODUCT, output_bytes)
    moved = 2 * (M * K + K * N) + output_bytes * M * N
    assert found[0] * H100.memory_bytes_per_second == pytest.approx(moved)


def test_a_product_takes_two_flop_for_each_of_its_triples():
    found = product_seconds(H100, curve(flop=1.0), PRODUCT, 2)
    assert found[0] * H100.linear.peak_flop_per_second == pytest.approx(2 * M * N * K)
    assert product_seconds(H100, curve(fixed=7e-6), PRODUCT, 2)[0] == pytest.approx(7e-6)


@pytest.mark.parametrize(
    ("precision", "moved"),
    [("mxfp8", 2 + 1), ("nvfp4", 2 * (2 + 2 + 2 * 9 / 16) / 3), ("bf16", 0)],
)
def test_a_narrow_product_first_casts_its_activations(precision, moved):
    """Read in 2 bytes, written in 1; four bits look for the largest first and write both ways.

    The weights are cast already.
    """
    rate = machine_of(parse_cluster("1x8:b200"), precision).linear
    free = replace(rate, fixed_seconds=0.0, flop_factor=0.0, byte_factor=0.0)
    found = product_seconds(H100, free, PRODUCT, 2)
    assert found == pytest.approx(elementwise_seconds(H100, moved * M * K * ONE), rel=0.01)


@pytest.mark.parametrize("gradient_bytes", [2, 4])
def test_gradients_of_a_product_are_two_products_and_that_of_the_weights_is_written_apart(
    gradient_bytes,
):
    """dX = dY W^T is m x k, written in 2 bytes; dW = X^T dY is k x n, written as it is summed.

    Operands of 4 bytes.
    """
    found = linear_seconds(H100, curve(moved=1.0, element_bytes=4), [PRODUCT], gradient_bytes)
    forward = 4 * (M * K + K * N) + 2 * M * N
    inputs = 4 * (M * N + N * K) + 2 * M * K
    weight = 4 * (K * M + M * N) + gradient_bytes * K * N
    seconds = np.array([found.forward[0], found.backward[0], found.weight[0]])
    moved = seconds * H100.memory_bytes_per_second
    assert moved == pytest.approx([forward, inputs + weight, weight])


def test_gradients_of_weights_are_written_in_fp32_unless_said_otherwise():
    usual, wide = (linear_seconds(H100, curve(moved=1.0), [PRODUCT], *b) for b in ((), (4,)))
    assert usual.weight == wide.weight


def fused(length=4096, dims=(128, 128), calls=0, speed=1.0, **constants):
    machine = replace(H100, constants=H100.constants.model_copy(update=constants))
    return fused_attention_seconds(
        machine, 1e12 * ONE, length, dims, rows=32 * ONE, speed=speed, calls=calls * ONE
    )


def test_the_backward_pass_of_fused_attention_has_five_products_for_two():
    """Source: Dao, arXiv:2307.08691, section 4.1."""
    found = fused(attention_backward_efficiency=1.0)
    assert found.backward / found.forward == pytest.approx(5 / 2)
    slower = fused(attention_backward_efficiency=0.8)
    assert slower.backward / slower.forward == pytest.approx(5 / 2 / 0.8)


def test_attention_reaches_half_its_efficiency_at_the_half_length():
    half = H100.attention_half_length
    found, long = (fused(length=length).forward for length in (half, 1e15))
    assert found / long == pytest.approx(2)
    peak = H100.attention_max_efficiency * H100.half.peak_flop_per_second
    assert long == pytest.approx(1e12 / peak)
    assert fused(speed=0.5).forward == pytest.approx(2 * fused().forward)


@pytest.mark.parametrize(
    ("dims", "narrow"), [((192, 128), 128), ((64, 64), 64), ((192, 64), 64), ((64, 128), 64)]
)
def test_the_narrower_of_query_and_value_slows_attention_below_128(dims, narrow):
    """Every score costs an exponential; latent attention has wider queries than values."""
    found = fused(dims=dims).forward / fused().forward
    assert found == pytest.approx((128 / narrow) ** 0.36)


def test_every_call_of_attention_starts_once_in_each_pass():
    none, three = (fused(calls=n, attention_fixed_seconds=1.0) for n in (0, 3))
    assert three.forward - none.forward == pytest.approx(3)
    assert three.backward - none.backward == pytest.approx(3)


@pytest.mark.parametrize(("dropout", "passes"), [(False, (1.5, 2.0)), (True, (4.0, 4.5))])
def test_unfused_attention_passes_over_its_scores_and_copies_what_surrounds_them(dropout, passes):
    """Scores in 2 bytes; the context is read and written, gradients of all three inputs are joined.

    Products cost nothing here.
    """
    constants = H100.constants.model_copy(update={"softmax_passes": 1.0})
    machine = replace(H100, half=curve(), constants=constants)
    rows, length, dims = 640 * ONE, 512, (96, 64)
    found = unfused_attention_seconds(machine, rows, length, dims, dropout=dropout)
    scores, (forward, backward) = 2 * 640 * 512, passes
    assert found.forward == pytest.approx(
        elementwise_seconds(machine, (forward * scores + 2 * 2 * 640 * 64) * ONE)
    )
    assert found.backward == pytest.approx(
        elementwise_seconds(machine, (backward * scores + 2 * 2 * 640 * (2 * 96 + 64)) * ONE)
    )


def test_unfused_attention_multiplies_scores_and_context_twice_more_backward():
    """2 m n k for queries with keys and for scores with values."""
    constants = H100.constants.model_copy(update={"softmax_passes": 0.0})
    machine = replace(H100, half=curve(flop=1.0), constants=constants, memory_bytes_per_second=1e30)
    found = unfused_attention_seconds(machine, 640 * ONE, 512, (96, 64), dropout=False)
    flop = 2 * 640 * 512 * (96 + 64)
    assert found.forward * machine.half.peak_flop_per_second == pytest.approx(flop)
    assert found.backward == pytest.approx(2 * found.forward)


def parts(make_job, part, cluster="1x8:h100-sxm", layout=None, constants=(), **machine):
    """One half of a layer of the small model with experts, on a changed machine."""
    job = make_job("small-moe", cluster)
    moe = job.model.moe.model_copy(update={"shared_expert_intermediate_size": 0})
    job = job.model_copy(update={"model": job.model.model_copy(update={"moe": moe})})
    made = machine_of(job.cluster, "bf16")
    changed = made.constants.model_copy(update=dict(constants))
    made = replace(made, constants=changed, **machine)
    table = LayoutTable.of([layout or Layout(dp=8, ep=8, micro_batch_size=1)])
    return part(shapes(context_of(job, made).with_table(table)))


@pytest.mark.parametrize(("part", "kernels"), [(attention_part, 9), (moe_part, 8)])
def test_kernels_beside_the_products_are_launched_one_by_one(make_job, part, kernels):
    """Nine in the attention half with both norms; eight of router and top-k. Half as many more
    backward, or as elementwise kernels."""
    found = [
        parts(
            make_job,
            part,
            constants={"launch_seconds": seconds, "elementwise_backward": 1.5}.items(),
        )
        for seconds in (1e-6, 2e-6)
    ]
    more = found[1].forward.elementwise - found[0].forward.elementwise
    assert more == pytest.approx(kernels * 1e-6)
    more = found[1].backward.elementwise - found[0].backward.elementwise
    assert more == pytest.approx(1.5 * kernels * 1e-6)


@pytest.mark.parametrize(
    ("curve_of", "products"),
    [("half", 1), ("linear", 2)],  # the router; up with gate, and down
)
def test_every_product_of_the_experts_half_is_two_products_backward(make_job, curve_of, products):
    slow = replace(H100.linear, fixed_seconds=H100.linear.fixed_seconds + 1.0)
    usual, slower = (parts(make_job, moe_part, **one) for one in ({}, {curve_of: slow}))
    assert slower.forward.gemm - usual.forward.gemm == pytest.approx(products)
    assert slower.backward.gemm - usual.backward.gemm == pytest.approx(2 * products)
    assert slower.weight - usual.weight == pytest.approx(products)


def test_tokens_go_to_their_experts_and_come_back_in_every_pass(make_job):
    """4 copies of 2048 tokens of 1024 in 2 bytes, 7 of 8 of them to other ranks, twice."""
    flat = {
        "bus_bytes_per_second": np.full_like(H100.bus_bytes_per_second, 1e9),
        "constants": {"alltoall_alpha": 3e-6, "alltoall_efficiency": 0.5}.items(),
    }
    found = parts(make_job, moe_part, **flat)
    once = 3e-6 + 4 * 2048 * 1024 * 2 * 7 / 8 / (1e9 * 0.5)
    assert found.forward.ep_comm == pytest.approx(2 * once)
    assert found.backward.ep_comm == pytest.approx(2 * once)
    alone = parts(make_job, moe_part, layout=Layout(dp=8, ep=1, micro_batch_size=1), **flat)
    assert alone.forward.ep_comm == 0


@pytest.mark.parametrize(("tp", "rows"), [(1, 50_304), (2, 50_432), (8, 51_200)])
def test_the_vocabulary_is_padded_to_128_rows_on_every_tensor_rank(tp, rows):
    """As Megatron-LM does by default: 50257 words of GPT-2."""
    assert padded_vocab(50_257, np.array([tp])) == rows

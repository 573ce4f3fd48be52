"""Seconds of the operations of one GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.layouts import FloatColumn, IntColumn
from trainplan.costmodel.machine.constants import Machine
from trainplan.costmodel.machine.hardware import GemmRate
from trainplan.costmodel.machine.head_widths import fused_slowness, unaligned_factor
from trainplan.costmodel.machine.residuals import Residuals
from trainplan.costmodel.machine.scaling import scaling_bytes

ATTENTION_BACKWARD_FLOP = 2.5
"""Source: Dao, FlashAttention-2, arXiv:2307.08691, section 4.1: 5 products against 2."""
SOFTMAX_PASSES, SOFTMAX_PASSES_BACKWARD = 1.5, 2.0
"""Passes over the scores by a fused scale, causal mask and softmax kernel in 16 bits.

Source: derived; Megatron-LM `scaled_upper_triang_masked_softmax.h` writes every score and reads
those below the diagonal alone, backward its output and the gradient.
"""
CONTEXT_COPIES, CONTEXT_COPIES_BACKWARD = 2, 2
"""Elements moved for each one of the context forward, and of queries, keys and values backward.

Source: derived; Megatron-LM `transformer.py` makes the context contiguous (read, written), and the
gradients of queries, keys and values, cut from one tensor, are joined again.
"""
DROPOUT_PASSES = 2.5
"""Passes of dropout in 16 bits, either way: read, written, and a mask of 1 byte.

Source: derived; with the softmax 4.0 forward, measured 3.9 (A10G) and 5.2 (A100), and 4.5
backward, measured 4.2 and 4.8: profiles of single operations, Dazz993/Mist@d69e530a.
"""
TORCH_SOFTMAX_PASSES, TORCH_SOFTMAX_PASSES_BACKWARD = 5.5, 20.0
"""As above for the whole core in fp32, which has no fused kernel: scale, mask fill, softmax and
dropout one by one.

Source: layer profiles of OPT-350M on A100 (5.1 and 19) and GH200 (6.4 and 21.8), products and norms
subtracted, eth-easl/sailor@cf2c8e3c.
"""

ADAM_SHARD_BYTES = 42
"""Bytes moved per parameter a rank updates: norm (4) and clipping (8) of its fp32 gradient; Adam
reads and writes fp32 weight and both moments (24), reads the gradient (4), writes bf16 (2).

Source: derived; Megatron Core `distrib_optimizer.py` clips and steps on the shard alone.
"""

ADAM_STEP_BYTES = 28
"""Of these, what a fused Adam step alone moves: fp32 weight, gradient and moments read, all but the
gradient written.

Source: fp32 weight, gradient and two moments are read, 4 x 4 bytes, and all but the gradient are
written, 3 x 4 bytes: 28.
"""


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product per row: `m x k` times `k x n`."""

    m: FloatColumn
    n: FloatColumn
    k: FloatColumn


@dataclass(frozen=True, slots=True)
class ForwardBackward:
    """Seconds of a forward pass and of its input and weight gradients together."""

    forward: FloatColumn
    backward: FloatColumn
    weight: FloatColumn
    """Part of `backward` that only the weight gradients need."""


def product_seconds(
    machine: Machine, rate: GemmRate, product: Product, output_bytes: int
) -> FloatColumn:
    """Seconds of one matrix product, as measured products near its shape say.

    Source: `roofline_seconds`; low precision adds the cast of its activation operand
    (MOVED_TO_CAST).
    """
    seconds = roofline_seconds(machine.memory_bytes_per_second, rate, product, output_bytes)
    if rate.residuals:
        sizes = (product.m, product.n, product.k, np.asarray(float(output_bytes)))
        seconds = seconds * rate.residuals.factor(*sizes)
    if not rate.cast_bytes:
        return seconds
    cast = rate.cast_bytes * product.m * product.k
    return seconds + cast / streaming_bytes_per_second(machine)


def roofline_seconds(
    memory_bytes_per_second: float, rate: GemmRate, product: Product, output_bytes: int
) -> FloatColumn:
    """Seconds of one matrix product by the curve of its GPU and precision.

    Source: additive roofline, t = a0 + a1 F / peak + a2 B / bandwidth, fitted per GPU and
    precision (5.6-7.8 % error in bf16).
    """
    m, n, k = product.m, product.n, product.k
    moved = rate.element_bytes * (m * k + k * n) + output_bytes * m * n
    return (
        rate.fixed_seconds
        + rate.flop_factor * 2 * m * n * k / rate.peak_flop_per_second
        + rate.byte_factor * moved / memory_bytes_per_second
    )


def grouped_rate(rate: GemmRate, *, weight_gradient: bool) -> GemmRate:
    """The curve of products as grouped kernels of experts follow it, where those were measured."""
    grouped = rate.grouped_weight if weight_gradient else rate.grouped
    return replace(rate, residuals=grouped or rate.residuals)


def forward_rate(rate: GemmRate) -> GemmRate:
    """The curve as measured forward products follow it: in fp8 they accumulate fast."""
    by_row = rate.recipe != "tensorwise"
    return replace(rate, residuals=(by_row and rate.fast_rows) or rate.fast or rate.residuals)


def linear_seconds(
    machine: Machine, rate: GemmRate, products: Sequence[Product], gradient_bytes: int = BYTES_FP32
) -> ForwardBackward:
    """Forward products and their input and weight gradients (written in `gradient_bytes`).

    What a product accumulates in fp32 is read while it runs, so only its write counts: products
    that accumulate were measured 4 to 5 % slower than those that do not (SimuMax tables of A100
    and B200, MooreThreads/SimuMax@4dcaae51 configs/system).
    Source: derived; Y = X W gives dX = dY W^T and dW += X^T dY. Scales of rows: `scaling_bytes`.
    """
    output, by_row, first = machine.storage_bytes, rate.recipe != "tensorwise", forward_rate(rate)
    weight_rate = machine.half if rate.recipe == "rowwise_with_gw_hp" else rate
    forward = sum_columns(product_seconds(machine, first, p, output) for p in products)
    inputs = sum_columns(
        product_seconds(machine, rate, Product(p.m, p.k, p.n), output) for p in products
    )
    weight = sum_columns(
        product_seconds(machine, weight_rate, Product(p.k, p.n, p.m), gradient_bytes)
        for p in products
    )
    if by_row:
        moved = [scaling_bytes(rate.recipe, p.m, p.n, p.k) for p in products]
        if rate.fast_rows is None:
            forward = forward * machine.constants.rowwise_product
        inputs = inputs + elementwise_seconds(machine, sum_columns(one.inputs for one in moved))
        weight = weight + elementwise_seconds(machine, sum_columns(one.weight for one in moved))
    return ForwardBackward(forward, inputs + weight, weight)


def fused_attention_seconds(
    machine: Machine,
    flop: FloatColumn,
    length: float | FloatColumn,
    dims: tuple[int, int],
    *,
    rows: FloatColumn,
    speed: float | FloatColumn,
    calls: IntColumn,
) -> ForwardBackward:
    """Fused causal attention of `flop` forward FLOPs over sequences of `length`, in some calls.

    `dims` are the widths of a query and of a value, `rows` heads times sequences on one rank;
    `speed` is that of the runtime's kernel over the best one for the GPU. On a ring of context
    ranks all but one call see no mask, so what the diagonal wastes is that of the whole sequence.
    Source: efficiency e = e_max s / (s + s_half) fitted per architecture, of heads as wide as a
    kernel exists for; Dao, arXiv:2307.08691, section 4.1 for the backward pass.
    """
    constants = machine.constants
    flop = flop * fused_slowness(machine.architecture, dims)
    efficiency = (
        machine.attention_max_efficiency * length / (length + machine.attention_half_length)
    )
    seconds = flop / (machine.half.peak_flop_per_second * efficiency * speed)
    backward = seconds * ATTENTION_BACKWARD_FLOP / constants.attention_backward_efficiency
    fixed = calls * constants.attention_fixed_seconds
    sizes = (np.asarray(length, dtype=np.float64), rows, np.asarray(float(sum(dims))))
    return ForwardBackward(
        (seconds + fixed) * _factor(machine.attention_residuals, *sizes),
        (backward + fixed) * _factor(machine.attention_backward_residuals, *sizes),
        np.zeros_like(seconds),
    )


def _factor(measured: Residuals | None, *sizes: FloatColumn) -> FloatColumn:
    """Measured over fitted seconds; 1 where nothing was measured. Source: `Residuals`."""
    return measured.factor(*sizes) if measured else np.ones(())


def unfused_attention_seconds(
    machine: Machine,
    rows: FloatColumn,
    length: int,
    dims: tuple[int, int],
    *,
    dropout: bool,
    legacy: bool = False,
) -> ForwardBackward:
    """Attention as two batched products and a softmax over `rows x length` scores.

    `rows` are heads times queries on one rank, `dims` the widths of a query and of a value; the
    mask saves nothing. `legacy`: with the libraries of 2021.
    Source: Korthikanti et al., arXiv:2205.05198, section 4.1 (the tensors); derived bytes.
    """
    query_dim, value_dim = dims
    n = np.zeros_like(rows) + length
    scores = Product(rows, n, np.zeros_like(rows) + query_dim)
    context = Product(rows, np.zeros_like(rows) + value_dim, n)
    slower = unaligned_factor(machine.storage_bytes, *dims, length, legacy=legacy)
    rate = replace(machine.half, flop_factor=machine.half.flop_factor * slower)
    products = product_seconds(machine, rate, scores, machine.storage_bytes) + product_seconds(
        machine, rate, context, machine.storage_bytes
    )
    one = elementwise_seconds(machine, machine.storage_bytes * rows * length)
    forward, backward = _passes_over_scores(machine, dropout=dropout)
    copies = copies_backward = np.zeros_like(rows)
    if machine.storage_bytes < BYTES_FP32:  # fp32: among its passes
        each = elementwise_seconds(machine, machine.storage_bytes * rows)
        copies = CONTEXT_COPIES * value_dim * each
        copies_backward = CONTEXT_COPIES_BACKWARD * (2 * query_dim + value_dim) * each
    return ForwardBackward(
        products + forward * one + copies,
        2 * products + backward * one + copies_backward,
        np.zeros_like(one),
    )


def _passes_over_scores(machine: Machine, *, dropout: bool) -> tuple[float, float]:
    """Passes of everything between the two products, forward and backward.

    Source: the constants.
    """
    if machine.storage_bytes == BYTES_FP32:
        return TORCH_SOFTMAX_PASSES, TORCH_SOFTMAX_PASSES_BACKWARD
    masks = DROPOUT_PASSES if dropout else 0.0
    share = machine.constants.softmax_passes
    return share * (SOFTMAX_PASSES + masks), share * (SOFTMAX_PASSES_BACKWARD + masks)


def optimizer_bytes_per_second(machine: Machine) -> float:
    """Memory bandwidth of the optimizer: measured, else as `streaming_bytes_per_second`."""
    return machine.optimizer_bytes_per_second or streaming_bytes_per_second(machine)


def streaming_bytes_per_second(machine: Machine) -> float:
    """Memory bandwidth that kernels without reuse reach. Source: `Constants`."""
    return machine.constants.elementwise_efficiency * machine.memory_bytes_per_second


def elementwise_seconds(machine: Machine, moved_bytes: FloatColumn) -> FloatColumn:
    """Memory-bound kernels that move `moved_bytes`.

    Source: roofline at `elementwise_efficiency` of memory bandwidth.
    """
    return moved_bytes / streaming_bytes_per_second(machine)


def sum_columns(columns: Iterable[FloatColumn]) -> FloatColumn:
    """Sum of columns; 0 for none.

    Source: the empty sum is zero, and a zero without a shape takes the shape of any column that is
    added to it.
    """
    total: FloatColumn = np.zeros(())
    for column in columns:
        total = total + column
    return total

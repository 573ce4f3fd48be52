"""Seconds of matrix products, and of the linear layers made of them.

Scales of rows add to a linear layer in fp8: rows of an operand and rows of its transpose have
scales of their own, so the two casts share no kernel; and where products accumulate in full (both
gradients), one kernel without scales runs, and another multiplies its output.
Source: pytorch/ao@36027d82 `torchao/testing/training/roofline_utils.py`,
get_tensor_memory_traffic_ovhd_s, and `float8/float8_ops.py`, addmm_float8_unwrapped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Float8Recipe
from trainplan.costmodel.kernels.memory_bound import (
    elementwise_seconds,
    streaming_bytes_per_second,
    sum_columns,
)
from trainplan.costmodel.machine import GemmRate, Machine


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
    by_row = rate.recipe.startswith("rowwise")
    fast = (by_row and rate.fast_rows) or rate.fast
    return replace(rate, residuals=fast) if fast else rate


def linear_seconds(
    machine: Machine, rate: GemmRate, products: Sequence[Product], gradient_bytes: int = BYTES_FP32
) -> ForwardBackward:
    """Forward products and their input and weight gradients (written in `gradient_bytes`).

    What a product accumulates in fp32 is read while it runs, so only its write counts: products
    that accumulate were measured 4 to 5 % slower than those that do not (SimuMax tables of A100
    and B200, MooreThreads/SimuMax@4dcaae51 configs/system).
    Source: derived; Y = X W gives dX = dY W^T and dW += X^T dY. Scales of rows: `scaling_bytes`.
    """
    output, by_row, first = (
        machine.storage_bytes,
        rate.recipe.startswith("rowwise"),
        forward_rate(rate),
    )
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


TRANSPOSED_INPUT = 2
"""Bytes an element of the input costs beyond both casts of one scale: 5 + 3 against 6.

Source: roofline_utils.py: read, written in 8 bits and transposed in 16; read again, written.
"""
TRANSPOSED_GRADIENT = 5
"""As above of the gradient of the output, of which one cast is counted elsewhere: 5 + 3 against 3.

Source: as above.
"""
RESCALED = 4
"""Bytes an element of a gradient costs to be scaled: read and written in 16 bits.

Source: float8_ops.py: output *= post_inverse_scale, a kernel apart (pytorch/ao issue 2184).
"""


@dataclass(frozen=True, slots=True)
class ScalingBytes:
    """Bytes moved beside the gradients of inputs, and beside those of weights."""

    inputs: FloatColumn
    weight: FloatColumn


def scaling_bytes(
    recipe: Float8Recipe, m: FloatColumn, n: FloatColumn, k: FloatColumn
) -> ScalingBytes:
    """Bytes that a recipe moves beyond one scale for a tensor; `m` tokens, `k` inputs, `n` outputs.

    With weight gradients in 16 bits nothing is cast along the other dimension.
    Source: the constants.
    """
    if not recipe.startswith("rowwise"):
        return ScalingBytes(0.0 * m, 0.0 * m)
    if recipe == "rowwise_with_gw_hp":
        return ScalingBytes(RESCALED * m * k, 0.0 * m)
    transposed = TRANSPOSED_INPUT * m * k + TRANSPOSED_GRADIENT * m * n
    return ScalingBytes(RESCALED * m * k, transposed + RESCALED * k * n)

"""Seconds of the operations of one GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.machine import GemmRate, Machine
from costmodel.table import FloatColumn
from costmodel.units import BYTES_BF16, BYTES_FP8, BYTES_FP32

ELEMENTWISE_EFFICIENCY = 0.75
"""Share of datasheet memory bandwidth that norms and activations reach.

Source: SimuMax system files (0.7 to 0.91 by operation); fitted, docs/explanation/constants.md.
"""
ELEMENTWISE_BACKWARD = 1.44
"""Backward over forward bytes. Source: fitted, docs/explanation/constants.md (derived: 1.6)."""
LAUNCH_SECONDS = 3e-6
"""One small kernel. Source: intercept of the fitted matrix products, 2.6 to 3.4 us."""
ATTENTION_FIXED_SECONDS = 33e-6
"""Start of one fused attention call. Source: fitted, docs/explanation/constants.md."""
ATTENTION_BACKWARD_FLOP = 2.5
"""Source: Dao, FlashAttention-2, arXiv:2307.08691, section 4.1: 5 products against 2."""
ATTENTION_BACKWARD_EFFICIENCY = 0.77
"""Backward over forward efficiency. Source: fitted, docs/explanation/constants.md."""
HEAD_DIM_EXPONENT = 0.35
"""Attention slows as (head_dim / 128) ** 0.35 below 128.

Source: assumed; docs/explanation/constants.md.
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


def product_seconds(
    machine: Machine, rate: GemmRate, product: Product, output_bytes: int
) -> FloatColumn:
    """Seconds of one matrix product.

    Source: additive roofline, t = a0 + a1 F / peak + a2 B / bandwidth, fitted per GPU and
    precision (5.6-7.8 % error in bf16); low precision adds the cast of its activation operand
    (read 2 bytes, write 1).
    """
    m, n, k = product.m, product.n, product.k
    moved = rate.element_bytes * (m * k + k * n) + output_bytes * m * n
    cast = (BYTES_BF16 + BYTES_FP8) * m * k if rate.element_bytes < BYTES_BF16 else 0.0
    return (
        rate.fixed_seconds
        + rate.flop_factor * 2 * m * n * k / rate.peak_flop_per_second
        + rate.byte_factor * moved / machine.memory_bytes_per_second
        + cast / (ELEMENTWISE_EFFICIENCY * machine.memory_bytes_per_second)
    )


def linear_seconds(
    machine: Machine, rate: GemmRate, products: Sequence[Product]
) -> ForwardBackward:
    """Forward products and their input and weight gradients (accumulated in fp32).

    Source: derived; Y = X W gives dX = dY W^T and dW += X^T dY.
    """
    forward = sum_columns(product_seconds(machine, rate, p, BYTES_BF16) for p in products)
    backward = sum_columns(
        product_seconds(machine, rate, Product(p.m, p.k, p.n), BYTES_BF16)
        + product_seconds(machine, rate, Product(p.k, p.n, p.m), 2 * BYTES_FP32)
        for p in products
    )
    return ForwardBackward(forward, backward)


def attention_seconds(
    machine: Machine, flop: FloatColumn, length: FloatColumn, head_dim: int
) -> ForwardBackward:
    """Fused causal attention of `flop` forward FLOPs over sequences of `length`.

    Source: efficiency e = e_max s / (s + s_half) fitted per architecture;
    Dao, arXiv:2307.08691, section 4.1 for the backward pass.
    """
    shape = min(1.0, head_dim / 128) ** HEAD_DIM_EXPONENT
    efficiency = (
        machine.attention_max_efficiency * length / (length + machine.attention_half_length)
    )
    seconds = flop / (machine.bf16.peak_flop_per_second * efficiency * shape)
    backward = seconds * ATTENTION_BACKWARD_FLOP / ATTENTION_BACKWARD_EFFICIENCY
    return ForwardBackward(seconds + ATTENTION_FIXED_SECONDS, backward + ATTENTION_FIXED_SECONDS)


def elementwise_seconds(machine: Machine, moved_bytes: FloatColumn) -> FloatColumn:
    """Memory-bound kernels that move `moved_bytes`.

    Source: roofline at ELEMENTWISE_EFFICIENCY of memory bandwidth.
    """
    return moved_bytes / (ELEMENTWISE_EFFICIENCY * machine.memory_bytes_per_second)


def sum_columns(columns: Iterable[FloatColumn]) -> FloatColumn:
    """Sum of columns; 0 for none. Source: derived."""
    total: FloatColumn = np.zeros(())
    for column in columns:
        total = total + column
    return total

"""What scales of rows add to the products of a linear layer in fp8, over one scale for a tensor.

Rows of an operand and rows of its transpose have scales of their own, so the two casts share no
kernel; and where products accumulate in full (both gradients), one kernel without scales runs, and
another multiplies its output.
Source: pytorch/ao@36027d82 `torchao/testing/training/roofline_utils.py`,
get_tensor_memory_traffic_ovhd_s, and `float8/float8_ops.py`, addmm_float8_unwrapped.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.costmodel.layouts import FloatColumn
from trainplan.costmodel.spec.job import Float8Recipe

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
    if recipe == "tensorwise":
        return ScalingBytes(0.0 * m, 0.0 * m)
    if recipe == "rowwise_with_gw_hp":
        return ScalingBytes(RESCALED * m * k, 0.0 * m)
    transposed = TRANSPOSED_INPUT * m * k + TRANSPOSED_GRADIENT * m * n
    return ScalingBytes(RESCALED * m * k, transposed + RESCALED * k * n)

"""Mixers that carry a state along the sequence: what all of them cost, from their sizes."""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.blocks.parts import Part, Shapes, pass_seconds
from trainplan.costmodel.blocks.residual import (
    FEED_FORWARD_KERNELS,
    MIXER_KERNELS,
    mask_bytes,
    residual_bytes,
    residual_columns,
)
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.kernels import (
    ForwardBackward,
    Product,
    elementwise_seconds,
    linear_seconds,
    streaming_bytes_per_second,
)
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.mixers import CoreProduct

CHUNK_PRODUCTS_SPEED = 0.395
"""Speed of products inside chunks over that of fused attention on long sequences.

Source: derived; the kernels of Mamba-2's scan pass 12.8 million tokens a second forward with 128
heads of 64, a state of 128, one group and chunks of 256 on an H100 (vllm-project/vllm pull request
27299, 8,192 and 16,384 tokens): of 78 ns the bytes it moves take 44, and 8.45 MFLOP the other 34.
The delta rule of 64 heads of 128 is 0.7 to 1.6 times as slow as this says (flashinfer-ai/flashinfer
pull requests 4078 and 3902, FLA on B300 and on one not named).
"""
CHUNK_PRODUCTS_RATE = 2.52e14
"""FLOPs a second that products inside chunks reach at most, whatever the GPU could.

Source: derived; CHUNK_PRODUCTS_SPEED of the 560 TFLOP/s of attention on H100. The same kernels of
a gated delta rule (64 value heads of 128, 32,768 tokens) take 3.98 ms on H100, 3.48 on H200, 3.21
on B200, 3.06 on GB200 and 2.94 on GB300 (ai-dynamo/aiconfigurator @095f58a5
`linear_attention/trtllm/1.3.0rc10/gdn_perf.parquet`): what memory does not take, which is 2.4 times
as fast, stays as long.
"""

CONVOLUTION_RATE = 3.7e12
"""Bytes a second that a short convolution reads and writes at most.

Source: derived; one over 6,144 columns of 32,768 tokens takes 0.330 ms on H100, 0.234 on B200,
0.220 on GB200 and 0.205 on GB300, 2.4 to 3.9 TB/s (ai-dynamo/aiconfigurator @095f58a5
`linear_attention/trtllm`, mamba2_perf.parquet of 1.3.0rc10, 15, 17 and 20, causal_conv1d_fn).
"""


@dataclass(frozen=True, slots=True)
class Carried:
    """Sizes of such a mixer, of the whole layer and for one token."""

    columns: int
    """Of the input projection, which tensor parallelism cuts."""
    outputs: int
    """Inputs of the output projection."""
    products: tuple[CoreProduct, ...]
    """Of its core."""
    moved: float
    """Elements that convolution, gates, norms and core read and write forward."""
    kept: float
    """Elements that its backward pass needs, beside what the residual stream keeps."""
    kept_fp32: float
    """As above in fp32, whatever the precision."""
    kernels: int
    """Beside the products of its projections."""
    inner: tuple[tuple[int, int], ...] = ()
    """Columns and inputs of further products whose columns are cut."""
    whole: tuple[int, ...] = ()
    """Columns of projections that every tensor rank makes of its own tokens."""
    moved_backward: float | None = None
    """As `moved`, backward; null: as every kernel bound by memory."""
    convolved: tuple[float, float] = (0.0, 0.0)
    """As `moved`, forward and backward, by a convolution of its own kernel."""
    gradients_speed: float = 1.0
    """Of the products of its core backward, over that forward."""


def carried_part(shapes: Shapes, sizes: Carried) -> Part:
    """Projections, core and traffic of such a mixer, and the norms of its layer.

    Tensor ranks share its heads: Megatron Core `ssm/mamba_mixer.py`, columns then rows.
    """
    machine, constants = shapes.machine, shapes.machine.constants
    products = _projections(shapes, sizes)
    tokens = shapes.tokens / shapes.table.tp
    core = core_seconds(machine, sizes.products, tokens, sizes.gradients_speed)
    there, back = convolution_seconds(shapes, sizes)
    moved = elementwise_seconds(machine, moved_bytes(shapes, sizes)) + there
    moved_back = moved_backward_seconds(shapes, sizes) + back
    kernels = MIXER_KERNELS + sizes.kernels
    if shapes.job.model.feed_forward != "none":
        kernels += FEED_FORWARD_KERNELS
    fixed = kernels * constants.launch_seconds
    exchange, tensor = heads_exchange(shapes, sizes), shapes.exposed_exchange(products)
    forward = pass_seconds(
        shapes.size,
        gemm=products.forward,
        attention=core.forward,
        elementwise=moved + fixed,
        tp_comm=tensor.forward,
        cp_comm=exchange,
    )
    backward = pass_seconds(
        shapes.size,
        gemm=products.backward,
        attention=core.backward,
        elementwise=moved_back + 1.5 * fixed,
        tp_comm=tensor.backward,
        cp_comm=exchange,
    )
    kept, tail = kept_bytes(shapes, sizes), pass_seconds(shapes.size)
    return Part(forward, backward, products.weight, kept, (), tail)


def _projections(shapes: Shapes, sizes: Carried) -> ForwardBackward:
    """Into the mixer, inside it and out of it."""
    zero, tp = np.zeros(shapes.size), shapes.table.tp
    h = zero + shapes.job.model.hidden_size
    own = shapes.tokens / shapes.residual_shards
    products = [
        Product(shapes.tokens, sizes.columns / tp, h),
        *(Product(shapes.tokens, columns / tp, zero + inputs) for columns, inputs in sizes.inner),
        *(Product(own, zero + columns, h) for columns in sizes.whole),
        Product(shapes.tokens, h, sizes.outputs / tp),
    ]
    return linear_seconds(shapes.machine, shapes.linear, products, shapes.gradient_bytes)


def core_seconds(
    machine: Machine, products: tuple[CoreProduct, ...], tokens: FloatColumn, gradients: float = 1.0
) -> ForwardBackward:
    """Seconds of the products of a core; each has two gradients, and some are made once more.

    `gradients` is their speed over that of the forward pass.
    Source: `chunk_rate`; `CoreProduct.again`.
    """
    each = tokens / chunk_rate(machine)
    forward = sum(product.flop for product in products)
    backward = sum((2 + product.again) * product.flop for product in products) / gradients
    return ForwardBackward(forward * each, backward * each, np.zeros_like(each))


def chunk_rate(machine: Machine) -> float:
    """FLOPs a second of products inside chunks.

    Source: measured, `CHUNK_PRODUCTS_SPEED` and `CHUNK_PRODUCTS_RATE`: a share of the speed of
    long attention, up to a rate that no newer GPU exceeds.
    """
    speed = CHUNK_PRODUCTS_SPEED * machine.attention_max_efficiency
    return min(speed * machine.half.peak_flop_per_second, CHUNK_PRODUCTS_RATE)


def moved_bytes(shapes: Shapes, sizes: Carried) -> FloatColumn:
    """Bytes moved forward by the mixer, by the norms and by the residual additions of its layer.

    Source: `Carried.moved` and `residual_columns`.
    """
    columns = residual_columns(shapes) + sizes.moved / shapes.table.tp
    return shapes.eager * shapes.storage * shapes.tokens * columns


def convolution_seconds(shapes: Shapes, sizes: Carried) -> tuple[FloatColumn, FloatColumn]:
    """Seconds of a convolution in a kernel of its own, in both passes. Source: CONVOLUTION_RATE."""
    rate = min(CONVOLUTION_RATE, streaming_bytes_per_second(shapes.machine))
    each = shapes.storage * shapes.tokens / shapes.table.tp / rate
    return sizes.convolved[0] * each, sizes.convolved[1] * each


def moved_backward_seconds(shapes: Shapes, sizes: Carried) -> FloatColumn:
    """Seconds that the backward pass takes to move what the mixer and its layer move.

    Source: `elementwise_backward`, or `Carried.moved_backward`.
    """
    usual = shapes.machine.constants.elementwise_backward
    if sizes.moved_backward is None:
        return usual * elementwise_seconds(shapes.machine, moved_bytes(shapes, sizes))
    columns = usual * residual_columns(shapes) + sizes.moved_backward / shapes.table.tp
    moved = shapes.eager * shapes.storage * shapes.tokens * columns
    return elementwise_seconds(shapes.machine, moved)


def kept_bytes(shapes: Shapes, sizes: Carried) -> FloatColumn:
    """Bytes kept from forward to backward. Source: `Carried.kept` and `residual_bytes`."""
    held = shapes.storage * sizes.kept + 4 * sizes.kept_fp32
    masks = mask_bytes(shapes) / shapes.residual_shards
    return shapes.tokens * (residual_bytes(shapes) + held / shapes.table.tp + masks)


def heads_exchange(shapes: Shapes, sizes: Carried) -> FloatColumn:
    """Seconds of the all-to-alls that deal out heads to context ranks and take them back.

    Every rank then scans whole sequences with its share of the heads. Backward sends the gradients
    of the same tensors.
    Source: Megatron Core @d98e8a64 `ssm/mamba_context_parallel.py`, pre_conv_ssm and post_conv_ssm,
    and `ssm/gated_delta_net/common.py`, a2a_cp_to_hp.
    """
    table = shapes.table
    links = group(shapes.machine, table.cp, table.tp * table.gtp)
    seconds = np.zeros(shapes.size)
    for columns in (sizes.columns, sizes.outputs):
        sent = shapes.storage * shapes.tokens * columns / table.tp
        seconds += collective_seconds(shapes.machine, "alltoall", sent, links)
    return seconds

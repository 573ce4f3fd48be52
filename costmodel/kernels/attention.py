"""Seconds of the core of attention: fused kernels by head width, or two products and a softmax."""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.kernels.memory_bound import elementwise_seconds
from trainplan.costmodel.kernels.products import ForwardBackward, Product, product_seconds
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.residuals import Residuals

HEAD_DIM_EXPONENT = {"hopper": 0.36, "blackwell": 0.68, "rubin": 0.68}
"""Fused attention slows as (head_dim / 128) to this power below 128, by architecture.

A score costs one exponential whatever the width, and matrix units grew faster than the units of
exponentials: 512 FLOPs at 128 wide take 1/4 cycle of a multiprocessor of A100, 1/8 of H100, 1/16
of B200, the exponential always 1/16.
Source: largest efficiencies at 64 and 128, fitted as `fused_attention_seconds`: H100 0.508 / 0.662
(FlashAttention-3), 0.402 / 0.567 (cuDNN), assets/flash3_fp16_fwd.png of
Dao-AILab/flash-attention@0251105a, and 0.518 / 0.628; B200 0.346 / 0.551 and 0.334 / 0.561,
context_attention_perf of sglang 0.5.14 and vllm 0.24.0, ai-dynamo/aiconfigurator@095f58a5.
"""
OLDER_HEAD_DIM_EXPONENT = 0.14
"""As above on other architectures.

Source: A100 0.563 / 0.620 of peak, forward and backward of FlashAttention-2,
assets/flash2_a100_fwd_bwd_benchmark.png of Dao-AILab/flash-attention@0251105a.
"""
HEAD_DIM_STEP, WIDE_HEAD_DIM_STEP = 32, 64
"""Widths of a head that fused kernels exist for are multiples of this up to 128, and beyond.

Source: Dao-AILab/flash-attention@0251105a csrc/flash_attn/flash_api.cpp, head_size_rounded.
"""
ALIGNED_BYTES = 16
"""Rows of operands have to start at multiples of this for tensor cores to load them.

Source: NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core Requirements".
"""
UNALIGNED_PRODUCTS, UNALIGNED_PRODUCTS_2021 = 1.35, 16.0
"""Times as slow are batched products of 16 bits whose rows do not: now, and with the libraries of
2021, which left the tensor cores.

Source: 155.9 TFLOP/s at 2,040 and 115.6 at 2,055 (an `align1` kernel) of bf16 on an RTX 4090,
pytorch/pytorch issue 181718; NVIDIA A100 datasheet, 312 TFLOP/s on tensor cores and 19.5 in fp32
without. BLOOM's runs with heads 108 and 150 wide lost what products at 9 to 10 TFLOP/s take.
"""


def kernel_head_dim(head_dim: int) -> int:
    """Width of the fused kernel that a head runs on, the rest of which is zeros.

    Source: HEAD_DIM_STEP and WIDE_HEAD_DIM_STEP.
    """
    step = HEAD_DIM_STEP if head_dim <= 128 else WIDE_HEAD_DIM_STEP
    return -(-head_dim // step) * step


def fused_slowness(architecture: str, dims: tuple[int, int]) -> float:
    """Seconds of a FLOP of fused attention over those at 128 wide, by widths of query and value.

    Source: `kernel_head_dim`, zeros cost as much as numbers; HEAD_DIM_EXPONENT.
    """
    widths = [kernel_head_dim(dim) for dim in dims]
    exponent = HEAD_DIM_EXPONENT.get(architecture, OLDER_HEAD_DIM_EXPONENT)
    return float(sum(widths) / sum(dims) * max(1.0, 128 / min(widths)) ** exponent)


def unaligned_factor(element_bytes: int, *widths: int, legacy: bool) -> float:
    """Seconds of batched products with rows of these widths, over those of aligned rows.

    Source: UNALIGNED_PRODUCTS; in fp32 they run on tensor cores as TF32, by the same rule.
    """
    if all(width * element_bytes % ALIGNED_BYTES == 0 for width in widths):
        return 1.0
    return UNALIGNED_PRODUCTS_2021 if legacy else UNALIGNED_PRODUCTS


ATTENTION_BACKWARD_FLOP = 2.5
"""Source: Dao, FlashAttention-2, arXiv:2307.08691, section 4.1: 5 products against 2."""
BACKWARD_HALF_LENGTH = {"hopper": 2500.0, "blackwell": 1566.0, "rubin": 1566.0}
"""Half length of the backward kernel where it starts slower than the forward one.

Source: causal, 128 wide: FlashAttention-3 on H100, 316, 444 and 539 TFLOP/s at 2k, 4k and 8k
tokens, within 3 % (forward 560, 667 and 685), facebookexperimental/triton pull 3582; on B200, in
mxfp8, 405, 584, 748 and 860 at 1k to 8k, within 6 %, pull 1692 there. FlashAttention-2 on A100
takes the length of its forward pass, assets/flash2_a100_fwd_bwd_benchmark.png of
Dao-AILab/flash-attention@0251105a.
"""
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


def fused_attention_seconds(
    machine: Machine,
    flop: FloatColumn,
    length: float | FloatColumn,
    dims: tuple[int, int],
    *,
    rows: FloatColumn,
    speed: float | FloatColumn,
    calls: IntColumn,
    slow_start: bool = False,
) -> ForwardBackward:
    """Fused causal attention of `flop` forward FLOPs over sequences of `length`, in some calls.

    `dims` are the widths of a query and of a value, `rows` heads times sequences on one rank;
    `speed` is that of the runtime's kernel over the best one for the GPU. On a ring of context
    ranks all but one call see no mask, so what the diagonal wastes is that of the whole sequence.
    Source: efficiency e = e_max s / (s + s_half) fitted per architecture, of heads as wide as a
    kernel exists for; Dao, arXiv:2307.08691, section 4.1 for the backward pass, which may have a
    `slow_start` (BACKWARD_HALF_LENGTH) where it was not measured.
    """
    constants = machine.constants
    flop = flop * fused_slowness(machine.architecture, dims)
    efficiency = (
        machine.attention_max_efficiency * length / (length + machine.attention_half_length)
    )
    seconds = flop / (machine.half.peak_flop_per_second * efficiency * speed)
    backward = seconds * ATTENTION_BACKWARD_FLOP / constants.attention_backward_efficiency
    own = BACKWARD_HALF_LENGTH.get(machine.architecture)
    if slow_start and own and machine.attention_backward_residuals is None:
        backward = backward * (length + own) / (length + machine.attention_half_length)
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

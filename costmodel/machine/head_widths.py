"""What the width of a head costs the kernels of attention."""

from __future__ import annotations

HEAD_DIM_EXPONENT = {"hopper": 0.36, "blackwell": 0.68}
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

"""Bytes of numbers that were cast for products in low precision, with their scales."""

from __future__ import annotations

from trainplan.costmodel import catalog
from trainplan.costmodel.job import Job, Precision

CAST_BYTES = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16}
"""One number: one scale of a byte stands beside 32 (mxfp8) or 16 (nvfp4) of them.

Source: NVIDIA/TransformerEngine @d0067d0d `transformer_engine/pytorch/constants.py`,
MXFP8_BLOCK_SCALING_SIZE and NVFP4_BLOCK_SCALING_SIZE; `pytorch/tensor/nvfp4_tensor.py`,
get_scale_shape; scales of a whole tensor (fp8) are one number.
"""
TRANSPOSES_IN_PRODUCTS = frozenset({"blackwell"})
"""Architectures that multiply fp8 in any order, so that no transpose is kept.

Source: NVIDIA/TransformerEngine @d0067d0d `transformer_engine/pytorch/utils.py`,
is_non_tn_fp8_gemm_supported (compute capability 10 and 11, not 12); ROCm/TransformerEngine
@07f3c6a5, the same function: not on AMD.
"""


def needs_second_cast(precision: Precision, architecture: str) -> bool:
    """Does the backward pass read another cast of a weight than the forward pass?

    Blocks of mxfp8 and nvfp4 are along rows or along columns, so a product in the other order needs
    its own.
    Source: NVIDIA/TransformerEngine @d0067d0d `transformer_engine/pytorch/csrc/quantizer.cpp`,
    create_tensor: with_transpose = columnwise_usage && !is_non_tn_fp8_gemm_supported for fp8.
    """
    return precision != "fp8" or architecture not in TRANSPOSES_IN_PRODUCTS


def cast_weight_bytes(job: Job) -> float:
    """Bytes of what products read of one weight, kept between micro batches.

    Source: `CAST_BYTES` and `needs_second_cast`, of any node group; Transformer Engine user guide,
    "FP8 primer", weight caching; Megatron-LM `core/extensions/transformer_engine.py`,
    is_first_microbatch.
    """
    precision = job.training.precision
    names = {catalog.device(group).architecture for group in job.cluster.groups}
    return CAST_BYTES[precision] * (1 + any(needs_second_cast(precision, name) for name in names))

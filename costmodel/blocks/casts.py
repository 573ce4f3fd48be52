"""Bytes of numbers that were cast for products in low precision, with their scales."""

from __future__ import annotations

from trainplan.costmodel import catalog
from trainplan.costmodel.spec import Job

CAST_BYTES = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16}
"""One number: one scale of a byte stands beside 32 (mxfp8) or 16 (nvfp4) of them.

Source: NVIDIA/TransformerEngine @d0067d0d `transformer_engine/pytorch/constants.py`,
MXFP8_BLOCK_SCALING_SIZE and NVFP4_BLOCK_SCALING_SIZE; `pytorch/tensor/nvfp4_tensor.py`,
get_scale_shape; scales of a whole tensor (fp8) are one number.
"""
TRANSPOSES_IN_PRODUCTS = frozenset({"blackwell"})
"""Architectures that multiply fp8 in any order, so that no transpose is kept.

Source: NVIDIA/TransformerEngine @d0067d0d `transformer_engine/pytorch/utils.py`,
is_non_tn_fp8_gemm_supported (compute capability 10 and 11, not 12); no GPU of AMD does, by the same
function in ROCm/TransformerEngine @07f3c6a5.
"""


def kept_copies(job: Job) -> int:
    """Casts of a weight that exist at once: rows for one pass, columns for the other.

    Blocks of mxfp8 and nvfp4 are along one of them, so a product in the other order needs its own.
    Source: NVIDIA/TransformerEngine @d0067d0d `transformer_engine/pytorch/csrc/quantizer.cpp`,
    create_tensor: with_transpose = columnwise_usage && !is_non_tn_fp8_gemm_supported for fp8.
    """
    names = {catalog.device(group).architecture for group in job.cluster.groups}
    alone = job.training.precision == "fp8" and names <= TRANSPOSES_IN_PRODUCTS
    return 1 if alone else 2


def cast_weight_bytes(job: Job) -> float:
    """Bytes of what products read of one weight, kept between micro batches.

    Source: `CAST_BYTES` and `kept_copies`; Transformer Engine user guide, "FP8 primer", weight
    caching; Megatron-LM `core/extensions/transformer_engine.py`, is_first_microbatch.
    """
    return CAST_BYTES[job.training.precision] * kept_copies(job)

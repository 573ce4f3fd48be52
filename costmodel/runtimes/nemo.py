"""NeMo Framework 24 and 25: Megatron Core with bf16 gradients and tensor-parallel overlap.

Source: NVIDIA/NeMo `llm/recipes` (grad_reduce_in_fp32=False, grad_sync_dtype bf16,
tp_comm_overlap=True) and NVIDIA/dgxc-benchmarking, which sets the same.
"""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.runtimes.base import HEAD_BYTES, no_offloads
from trainplan.costmodel.runtimes.megatron_bridge import MEGATRON_BRIDGE
from trainplan.costmodel.runtimes.megatron_lm import MEGATRON_LM

NEMO = replace(
    MEGATRON_LM,
    name="nemo",
    version="25.04",
    overlaps_tensor_parallel=True,
    gathers_apart=False,  # as Megatron-Bridge, which took it over
    offload_modules=(),  # Megatron Core learnt it later
    offloads=no_offloads,
    gradient_bytes=2,
    gradient_message_bytes=2,
    head_bytes_per_logit=HEAD_BYTES["fused"],
    # fp8_params and cuDNN attention; routing weights as in Megatron Core before 0.12
    footprint=replace(MEGATRON_BRIDGE.footprint, weighted_experts=False),
)

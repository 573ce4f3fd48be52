"""Megatron-Bridge performance recipes: Megatron Core with bf16 gradients and fused loss.

Source: NVIDIA-NeMo/Megatron-Bridge @067f987d, `src/megatron/bridge/recipes` and `perf_recipes`
(grad_reduce_in_fp32=False, cross_entropy_fusion_impl="te", overlap_grad_reduce, TP overlap on
where sequence parallelism is; a flex dispatcher where experts span nodes; HybridEP recipes of 26.06
under one full-iteration CUDA graph).
"""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.runtimes.base import HEAD_BYTES
from trainplan.costmodel.runtimes.megatron_lm import MEGATRON_LM

MEGATRON_BRIDGE = replace(
    MEGATRON_LM,
    name="megatron-bridge",
    version="067f987d",
    overlaps_tensor_parallel=True,
    moe_dispatcher_across="deepep",
    graphs_hybridep=True,
    gathers_apart=False,  # comm_overlap.py:579, overlap_param_gather wherever replicas are
    routing_weight_bytes=2,  # recipes/gpt_oss leave moe_router_dtype to the type of the model
    gradient_bytes=2,
    gradient_message_bytes=2,
    head_bytes_per_logit=HEAD_BYTES["fused"],
    # fp8_param_gather; cuDNN attention takes any order of dimensions
    footprint=replace(MEGATRON_LM.footprint, low_precision="primary", batch_first_attention=False),
)

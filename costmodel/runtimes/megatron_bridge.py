"""Megatron-Bridge performance recipes: Megatron Core with bf16 gradients and fused loss.

Source: NVIDIA-NeMo/Megatron-Bridge @067f987d, `src/megatron/bridge/recipes` and `perf_recipes`
(grad_reduce_in_fp32=False, cross_entropy_fusion_impl="te", overlap_grad_reduce, TP overlap on
where sequence parallelism is; a flex dispatcher where experts span nodes; HybridEP recipes of 26.06
under one full-iteration CUDA graph with the exchange beside compute).
"""

from dataclasses import replace

from trainplan.costmodel.architecture import Trained
from trainplan.costmodel.runtimes.adapters import BRIDGE_RULES
from trainplan.costmodel.runtimes.bridged import BRIDGE_MODEL_RULES, unbridged
from trainplan.costmodel.runtimes.megatron.core import MEGATRON_CORE
from trainplan.costmodel.runtimes.megatron.dispatchers import deepep_leaves_racks_out
from trainplan.costmodel.runtimes.megatron.settings import BRIDGE_SETTINGS, BRIDGE_STATED
from trainplan.costmodel.runtimes.traits import Adapting, Experts
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES
from trainplan.costmodel.runtimes.traits.layers import GATED_OUTPUT

MEGATRON_BRIDGE = replace(
    MEGATRON_CORE,
    name="megatron-bridge",
    version="067f987d",
    kernels=replace(MEGATRON_CORE.kernels, head_bytes_per_logit=HEAD_BYTES["fused"]),
    gradients=replace(MEGATRON_CORE.gradients, accumulated_bytes=2, message_bytes=2),
    # comm_overlap.py:574: bucket_size
    sharding=replace(MEGATRON_CORE.sharding, bucket_elements=128 * 2**20, bucket_elements_a_rank=0),
    # comm_overlap.py:579: overlap_param_gather where replicas are, so `gathers_separately` is off
    communication=replace(
        MEGATRON_CORE.communication,
        overlaps_tensor_parallel=True,
        context_by_sequence=True,  # model.hybrid_context_parallel of Megatron Core
    ),
    experts=Experts(
        dispatcher_across="deepep",
        routing_weight_bytes=2,  # recipes/gpt_oss leave moe_router_dtype to the type of the model
    ),
    # training/optim.py: names with "dist" are sharded by whole matrices
    optimizers=(*MEGATRON_CORE.optimizers[:4], ("dist-muon", "dist_muon"), ("soap", "soap")),
    state_precisions=("o0",),
    settings=BRIDGE_SETTINGS,
    stated=BRIDGE_STATED,
    rules=(
        *MEGATRON_CORE.rules,
        deepep_leaves_racks_out,
        *BRIDGE_RULES,
        *BRIDGE_MODEL_RULES,
    ),
    refuses=unbridged,
    layers=MEGATRON_CORE.layers | {f"{GATED_OUTPUT} by head"},  # models/stepfun
    # peft/lora.py: linear_qkv and linear_fc1, one adapter for the local experts;
    # perf_recipes/llama and NeMo scripts/performance/llm/mlperf_lora_llama2_70b.py:
    # disable_parameter_transpose_cache of every run with adapters
    adapting=Adapting(methods=("lora",), joins=True, experts=True, caches_transposes=False),
    # fp8_param_gather; cuDNN attention takes any order of dimensions
    footprint=replace(
        MEGATRON_CORE.footprint, low_precision="primary", batch_first_attention=False
    ),
    recipe=replace(
        MEGATRON_CORE.recipe,
        shards_optimizer=True,
        # recipes/deepseek and recipes/moonlight: use_precision_aware_optimizer with exp_avg_dtype
        # and exp_avg_sq_dtype bf16
        latent_moments="bf16",
        # recipes/llama/h100/llama3.py, llama3_70b_peft_8gpu_h100_bf16_config (dim 16), and
        # perf_recipes/llama, peft.target_modules of every one
        lora=Trained(method="lora", rank=16, modules=("q", "k", "v")),
        # perf_recipes/deepseek/common.py, _enable_deepseek_full_iteration_mxfp8, and siblings in
        # qwen and gpt_oss; recipes in other precisions name a graph of attention or none
        graphs_hybridep=("mxfp8",),
    ),
)

"""Qwen3-MoE: Qwen3 attention, routed experts, no shared expert.

Source: transformers `Qwen3MoeConfig`, `modeling_qwen3_moe.py`; arXiv:2505.09388, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.model.families.decoder import DEFAULTS as COMMON
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.qwen2 import WINDOW_DEFAULTS, window
from trainplan.costmodel.model.families.qwen2_moe import MOE_DEFAULTS, leading_dense_layers
from trainplan.costmodel.model.families.reader import HfConfig, every_layer, listed_layers

DEFAULTS = {**COMMON, **WINDOW_DEFAULTS, **MOE_DEFAULTS, "head_dim": None}


def qwen3_moe(config: HfConfig) -> ModelSpec:
    """Read a Qwen3-MoE."""
    config = config.with_defaults(DEFAULTS)
    bias = config.boolean("attention_bias")
    moe = MoeSpec(
        num_experts=config.integer("num_experts", "num_local_experts"),
        num_experts_per_tok=config.integer("num_experts_per_tok"),
        moe_intermediate_size=config.integer("moe_intermediate_size"),
        first_k_dense_replace=leading_dense_layers(config),
        moe_layer_freq=config.integer("decoder_sparse_step"),
        norm_topk_prob=config.boolean("norm_topk_prob"),
    )
    return decoder(
        config,
        qkv_bias=bias,
        attention_output_bias=bias,
        qk_norm="head",
        **listed_layers(config, window(config), every_layer(config), moe),
    )

"""DeepSeek-V2: multi-head latent attention, fine-grained and shared experts.

Source: transformers `DeepseekV2Config`, `modeling_deepseek_v2.py`; arXiv:2405.04434, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import MlaSpec, ModelSpec, MoeSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.model.families.decoder import DEFAULTS as COMMON
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.model.families.routing import BALANCED_WITHOUT_LOSS

DEFAULTS = {
    **COMMON,
    "num_key_value_heads": None,
    "moe_layer_freq": 1,
    "norm_topk_prob": False,
    "scoring_func": "softmax",
    "topk_method": "greedy",
    "routed_scaling_factor": 1.0,
    "n_group": None,
    "topk_group": None,
    "num_nextn_predict_layers": 0,
}


def latent_attention(config: HfConfig) -> MlaSpec:
    """The ranks and head parts of multi-head latent attention."""
    return MlaSpec(
        q_lora_rank=config.optional_integer("q_lora_rank"),
        kv_lora_rank=config.integer("kv_lora_rank"),
        qk_nope_head_dim=config.integer("qk_nope_head_dim"),
        qk_rope_head_dim=config.integer("qk_rope_head_dim"),
        v_head_dim=config.integer("v_head_dim"),
    )


def experts(config: HfConfig) -> MoeSpec:
    """Routed and shared experts; all shared experts are one wide MLP."""
    if config.integer("moe_layer_freq") != 1:
        raise UnsupportedError(f"{config.where}: 'moe_layer_freq' other than 1 is not modelled")
    width = config.integer("moe_intermediate_size")
    return MoeSpec.model_validate(
        {
            "num_experts": config.integer("n_routed_experts", "num_local_experts", "num_experts"),
            "num_experts_per_tok": config.integer("num_experts_per_tok"),
            "moe_intermediate_size": width,
            "shared_expert_intermediate_size": config.count("n_shared_experts") * width,
            "first_k_dense_replace": config.count("first_k_dense_replace"),
            "router_bias": config.text("topk_method") == BALANCED_WITHOUT_LOSS,
            "router_score_function": config.text("scoring_func"),
            "norm_topk_prob": config.boolean("norm_topk_prob"),
            "n_group": config.optional_integer("n_group"),
            "topk_group": config.optional_integer("topk_group"),
            "routed_scaling_factor": config.number("routed_scaling_factor"),
        }
    )


def deepseek_v2(config: HfConfig) -> ModelSpec:
    """Read a DeepSeek-V2; `head_dim` is that of a query, rotated and plain part together."""
    config = config.with_defaults(DEFAULTS)
    if config.with_defaults({"mlp_bias": False}).boolean("mlp_bias"):
        raise UnsupportedError(f"{config.where}: 'mlp_bias' is not modelled")
    attention = latent_attention(config)
    bias = config.boolean("attention_bias")
    return decoder(
        config,
        head_dim=attention.qk_nope_head_dim + attention.qk_rope_head_dim,
        qkv_bias=bias,
        attention_output_bias=bias,
        mla=attention,
        moe=experts(config),
        num_nextn_predict_layers=config.count("num_nextn_predict_layers", "num_mtp_layers"),
    )

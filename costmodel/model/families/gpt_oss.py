"""gpt-oss: experts and router with biases, attention sinks, every other layer sliding.

Source: transformers `GptOssConfig`, `modeling_gpt_oss.py`; arXiv:2508.10925, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.reader import HfConfig, every_other_layer, listed_layers

DEFAULTS = {
    "attention_bias": True,
    "sliding_window": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 150_000.0,
    "swiglu_limit": 7.0,
}


def gpt_oss(config: HfConfig) -> ModelSpec:
    """Read a gpt-oss."""
    config = config.with_defaults(DEFAULTS)
    bias = config.boolean("attention_bias")
    window = config.optional_integer("sliding_window")
    moe = MoeSpec(
        num_experts=config.integer("num_local_experts", "num_experts"),
        num_experts_per_tok=config.integer("num_experts_per_tok", "experts_per_token"),
        moe_intermediate_size=config.integer("intermediate_size"),
        router_bias=True,
        expert_bias=True,
    )
    return decoder(
        config,
        qkv_bias=bias,
        attention_output_bias=bias,
        attention_sinks=True,
        swiglu_limit=config.number("swiglu_limit"),
        **listed_layers(config, window, every_other_layer(config), moe),
    )

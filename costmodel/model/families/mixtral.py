"""Mixtral: Mistral with a mixture of experts in every layer.

Source: transformers `MixtralConfig`; arXiv:2401.04088, section 2 (softmax over the top k).
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.reader import HfConfig, every_layer, listed_layers

DEFAULTS = {
    "head_dim": None,
    "sliding_window": None,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1_000_000.0,
}


def mixtral(config: HfConfig) -> ModelSpec:
    """Read a Mixtral."""
    config = config.with_defaults(DEFAULTS)
    window = config.optional_integer("sliding_window")
    moe = MoeSpec(
        num_experts=config.integer("num_local_experts", "num_experts"),
        num_experts_per_tok=config.integer("num_experts_per_tok"),
        moe_intermediate_size=config.integer("intermediate_size"),
    )
    return decoder(config, **listed_layers(config, window, every_layer(config), moe))

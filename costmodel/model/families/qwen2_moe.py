"""Qwen2-MoE: routed experts and one gated shared expert.

Source: transformers `Qwen2MoeConfig`, `modeling_qwen2_moe.py`; arXiv:2407.10671, section 2.2.2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.qwen2 import WINDOW_DEFAULTS, window
from trainplan.costmodel.model.families.reader import HfConfig, listed_layers

MOE_DEFAULTS = {"decoder_sparse_step": 1, "mlp_only_layers": None, "norm_topk_prob": False}
DEFAULTS = {**WINDOW_DEFAULTS, **MOE_DEFAULTS, "head_dim": None, "qkv_bias": True}


def leading_dense_layers(config: HfConfig) -> int:
    """Dense layers before the first mixture; other places for them are not modelled."""
    dense = set(config.indices("mlp_only_layers"))
    leading = len(dense)
    if dense != set(range(leading)) or (dense and config.integer("decoder_sparse_step") != 1):
        raise UnsupportedError(
            f"{config.where}: 'mlp_only_layers' is modelled for the first layers only, "
            "and only with 'decoder_sparse_step' = 1"
        )
    return leading


def alternate_lower_layers(config: HfConfig) -> tuple[bool, ...]:
    """The first of every two layers below `max_window_layers`, which are those that slide."""
    end = config.count("max_window_layers")
    return tuple(i % 2 == 0 and i < end for i in range(config.integer("num_hidden_layers")))


def qwen2_moe(config: HfConfig) -> ModelSpec:
    """Read a Qwen2-MoE."""
    config = config.with_defaults(DEFAULTS)
    moe = MoeSpec(
        num_experts=config.integer("num_experts", "num_local_experts"),
        num_experts_per_tok=config.integer("num_experts_per_tok"),
        moe_intermediate_size=config.integer("moe_intermediate_size"),
        shared_expert_intermediate_size=config.integer("shared_expert_intermediate_size"),
        shared_expert_gate=True,
        first_k_dense_replace=leading_dense_layers(config),
        moe_layer_freq=config.integer("decoder_sparse_step"),
        norm_topk_prob=config.boolean("norm_topk_prob"),
    )
    return decoder(
        config,
        qkv_bias=config.boolean("qkv_bias"),
        **listed_layers(config, window(config), alternate_lower_layers(config), moe),
    )

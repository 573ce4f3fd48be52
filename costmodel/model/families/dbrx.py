"""DBRX: LayerNorm without biases, grouped queries, experts in every layer.

Source: transformers `DbrxConfig`, `modeling_dbrx.py`; databricks/dbrx, README.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.model.families.decoder import ACTIVATIONS, head_dim
from trainplan.costmodel.model.families.reader import HfConfig

DEFAULTS = {"tie_word_embeddings": False}
IN_ATTENTION = {"rope_theta": 10_000.0, "kv_n_heads": 1}
IN_EXPERTS = {"moe_num_experts": 4, "moe_top_k": 1, "ffn_hidden_size": 3584, "ffn_act_fn": None}


def dbrx(config: HfConfig) -> ModelSpec:
    """Read a DBRX, whose attention and experts have sections of their own."""
    config = config.with_defaults(DEFAULTS)
    attention = config.section("attn_config").with_defaults(IN_ATTENTION)
    experts = config.section("ffn_config").with_defaults(IN_EXPERTS)
    heads, width = config.integer("n_heads"), experts.integer("ffn_hidden_size")
    moe = MoeSpec(
        num_experts=experts.integer("moe_num_experts"),
        num_experts_per_tok=experts.integer("moe_top_k"),
        moe_intermediate_size=width,
    )
    return ModelSpec.model_validate(
        {
            "name": config.name,
            "model_type": config.model_type,
            "num_hidden_layers": config.integer("n_layers"),
            "hidden_size": config.integer("d_model"),
            "intermediate_size": width,
            "num_attention_heads": heads,
            "num_key_value_heads": attention.integer("kv_n_heads"),
            "head_dim": head_dim(config, hidden="d_model", heads="n_heads"),
            "vocab_size": config.integer("vocab_size"),
            "max_position_embeddings": config.integer("max_seq_len"),
            "rope_theta": attention.number("rope_theta"),
            "norm": "layernorm",
            "norm_weights": "scale",
            "activation": _activation(experts),
            "tie_word_embeddings": config.boolean("tie_word_embeddings"),
            "moe": moe,
        }
    )


def _activation(experts: HfConfig) -> str:
    section = experts.optional_section("ffn_act_fn")
    name = section.text("name") if section else "silu"
    if name not in ACTIVATIONS:
        raise UnsupportedError(f"{experts.where}: activation {name!r} is not modelled")
    return ACTIVATIONS[name]

"""GPT-NeoX and Pythia: LayerNorm, biases, partial rotary positions, parallel residual.

Source: transformers `GPTNeoXConfig`, `modeling_gpt_neox.py`; arXiv:2204.06745, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.decoder import activation, head_dim
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.model.families.rope import rotary

DEFAULTS = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "rotary_emb_base": 10_000.0,
    "rotary_pct": 0.25,
    "use_parallel_residual": True,
    "attention_bias": True,
    "tie_word_embeddings": False,
}


def gpt_neox(config: HfConfig) -> ModelSpec:
    """Read a GPT-NeoX or a Pythia."""
    config = config.with_defaults(DEFAULTS)
    heads, bias = config.integer("num_attention_heads"), config.boolean("attention_bias")
    rope = rotary(config, theta="rotary_emb_base", partial="rotary_pct")
    return ModelSpec.model_validate(
        {
            "name": config.name,
            "model_type": config.model_type,
            "num_hidden_layers": config.integer("num_hidden_layers"),
            "hidden_size": config.integer("hidden_size"),
            "intermediate_size": config.integer("intermediate_size"),
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": head_dim(config, heads="num_attention_heads"),
            "vocab_size": config.integer("vocab_size"),
            "max_position_embeddings": config.integer("max_position_embeddings"),
            "rope_theta": rope.theta,
            "partial_rotary_factor": rope.partial_factor,
            "rope_scaling": rope.scaling,
            "norm": "layernorm",
            "norm_eps": config.number("layer_norm_eps"),
            "parallel_residual": config.boolean("use_parallel_residual"),
            "activation": activation(config, "hidden_act"),
            "gated_mlp": False,
            "qkv_bias": bias,
            "attention_output_bias": bias,
            "mlp_bias": True,
            "tie_word_embeddings": config.boolean("tie_word_embeddings"),
        }
    )

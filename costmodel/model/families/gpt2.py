"""GPT-2, and GPT-3 as its paper and Megatron-LM build it.

Source: transformers `GPT2Config`, `modeling_gpt2.py`; arXiv:2005.14165, section 2.1.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.model.families.decoder import activation, head_dim
from trainplan.costmodel.model.families.reader import HfConfig

DEFAULTS = {
    "n_inner": None,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
    "add_cross_attention": False,
}


def gpt2(config: HfConfig) -> ModelSpec:
    """Read a GPT-2; the MLP is four times as wide as the model unless `n_inner` says."""
    config = config.with_defaults(DEFAULTS)
    if config.boolean("add_cross_attention"):
        raise UnsupportedError(f"{config.where}: 'add_cross_attention' is not modelled")
    hidden, heads = config.integer("n_embd"), config.integer("n_head")
    return ModelSpec.model_validate(
        {
            "name": config.name,
            "model_type": config.model_type,
            "num_hidden_layers": config.integer("n_layer"),
            "hidden_size": hidden,
            "intermediate_size": config.optional_integer("n_inner") or 4 * hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": head_dim(config, hidden="n_embd", heads="n_head"),
            "vocab_size": config.integer("vocab_size"),
            "max_position_embeddings": config.integer("n_positions"),
            "position_embedding": "learned",
            "norm": "layernorm",
            "norm_eps": config.number("layer_norm_epsilon"),
            "activation": activation(config, "activation_function"),
            "gated_mlp": False,
            "qkv_bias": True,
            "attention_output_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": config.boolean("tie_word_embeddings"),
        }
    )

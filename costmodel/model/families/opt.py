"""OPT: GPT-3 with ReLU and two unused rows in the position table.

Source: transformers `OPTConfig`, `modeling_opt.py`; arXiv:2205.01068, section 2.1.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.model.families.decoder import activation, head_dim
from trainplan.costmodel.model.families.reader import HfConfig

DEFAULTS = {
    "activation_function": "relu",
    "word_embed_proj_dim": None,
    "do_layer_norm_before": True,
    "_remove_final_layer_norm": False,
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
    "tie_word_embeddings": True,
}


def opt(config: HfConfig) -> ModelSpec:
    """Read an OPT; only OPT-350M norms after the residual and embeds at another width."""
    config = config.with_defaults(DEFAULTS)
    if not config.boolean("layer_norm_elementwise_affine"):
        raise UnsupportedError(f"{config.where}: norms without weights are not modelled")
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    width, before = config.optional_integer("word_embed_proj_dim"), "do_layer_norm_before"
    bias, pre_norm = config.boolean("enable_bias"), config.boolean(before)
    return ModelSpec.model_validate(
        {
            "name": config.name,
            "model_type": config.model_type,
            "num_hidden_layers": config.integer("num_hidden_layers"),
            "hidden_size": hidden,
            "intermediate_size": config.integer("ffn_dim"),
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": head_dim(config, heads="num_attention_heads"),
            "vocab_size": config.integer("vocab_size"),
            "max_position_embeddings": config.integer("max_position_embeddings"),
            "position_embedding": "learned",
            "position_embedding_offset": 2,
            "embedding_size": None if width == hidden else width,
            "norm": "layernorm",
            "norm_position": "pre" if pre_norm else "post",
            "final_norm": pre_norm and not config.boolean("_remove_final_layer_norm"),
            "activation": activation(config, "activation_function"),
            "gated_mlp": False,
            "qkv_bias": bias,
            "attention_output_bias": bias,
            "mlp_bias": bias,
            "tie_word_embeddings": config.boolean("tie_word_embeddings"),
        }
    )

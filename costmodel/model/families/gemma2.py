"""Gemma 2: norms before and after each part, soft caps, every other layer sliding.

Source: transformers `Gemma2Config`, `modeling_gemma2.py`; arXiv:2408.00118, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.decoder import DEFAULTS as COMMON
from trainplan.costmodel.model.families.decoder import activation, decoder
from trainplan.costmodel.model.families.reader import HfConfig, every_other_layer, listed_layers

DEFAULTS = {
    **COMMON,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}


def gemma(config: HfConfig, otherwise_sliding: Sequence[bool], qk_norm: str) -> ModelSpec:
    """What Gemma 2 and Gemma 3 share.

    Args:
        config: The file, with the defaults of its family.
        otherwise_sliding: Which layers slide where the file does not list them.
        qk_norm: Norm on queries and keys.
    """
    bias = config.boolean("attention_bias")
    window = config.optional_integer("sliding_window")
    return decoder(
        config,
        norm_position="both",
        activation=activation(config, "hidden_activation"),
        qkv_bias=bias,
        attention_output_bias=bias,
        qk_norm=qk_norm,
        scale_embeddings=True,
        attn_logit_softcapping=config.optional_number("attn_logit_softcapping"),
        final_logit_softcapping=config.optional_number("final_logit_softcapping"),
        **listed_layers(config, window, otherwise_sliding),
    )


def gemma2(config: HfConfig) -> ModelSpec:
    """Read a Gemma 2."""
    config = config.with_defaults(DEFAULTS)
    return gemma(config, every_other_layer(config), qk_norm="none")

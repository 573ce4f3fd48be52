"""Llama 1 to 3.3.

Source: transformers `LlamaConfig`, `modeling_llama.py`; arXiv:2307.09288, arXiv:2407.21783.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.decoder import DEFAULTS as COMMON
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.reader import HfConfig

DEFAULTS = {**COMMON, "head_dim": None, "num_key_value_heads": None}


def llama(config: HfConfig) -> ModelSpec:
    """Read a Llama."""
    config = config.with_defaults(DEFAULTS)
    bias = config.boolean("attention_bias")
    return decoder(
        config,
        qkv_bias=bias,
        attention_output_bias=bias,
        mlp_bias=config.boolean("mlp_bias"),
    )

"""Qwen3, dense: RMSNorm on every query and key head.

Source: transformers `Qwen3Config`, `modeling_qwen3.py`; arXiv:2505.09388, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.decoder import DEFAULTS as COMMON
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.qwen2 import WINDOW_DEFAULTS, upper_layers, window
from trainplan.costmodel.model.families.reader import HfConfig, listed_layers

DEFAULTS = {**COMMON, **WINDOW_DEFAULTS}


def qwen3(config: HfConfig) -> ModelSpec:
    """Read a dense Qwen3."""
    config = config.with_defaults(DEFAULTS)
    bias = config.boolean("attention_bias")
    return decoder(
        config,
        qkv_bias=bias,
        attention_output_bias=bias,
        qk_norm="head",
        **listed_layers(config, window(config), upper_layers(config)),
    )

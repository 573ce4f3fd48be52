"""OLMo 2: norms after each part, and over all query and all key heads together.

Source: transformers `Olmo2Config`, `modeling_olmo2.py`; arXiv:2501.00656, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.decoder import DEFAULTS as COMMON
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.reader import HfConfig

DEFAULTS = {**COMMON, "head_dim": None, "num_key_value_heads": None, "rms_norm_eps": 1e-5}


def olmo2(config: HfConfig) -> ModelSpec:
    """Read an OLMo 2."""
    config = config.with_defaults(DEFAULTS)
    bias = config.boolean("attention_bias")
    return decoder(
        config,
        norm_position="post",
        qk_norm="full",
        qkv_bias=bias,
        attention_output_bias=bias,
    )

"""GLM-4-0414: norms before and after each part, half of each head rotated.

Source: transformers `Glm4Config`, `modeling_glm4.py`; arXiv:2406.12793, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.reader import HfConfig

DEFAULTS = {
    "attention_bias": True,
    "rms_norm_eps": 1.5625e-07,
    "partial_rotary_factor": 0.5,
}


def glm4(config: HfConfig) -> ModelSpec:
    """Read a GLM-4; the attention output never has a bias."""
    config = config.with_defaults(DEFAULTS)
    return decoder(config, norm_position="both", qkv_bias=config.boolean("attention_bias"))


def glm4v(config: HfConfig) -> ModelSpec:
    """Read the language model of a GLM-4V, which may leave the width of its heads out."""
    return glm4(config.with_defaults({"head_dim": None, "num_key_value_heads": None}))


def glm_ocr(config: HfConfig) -> ModelSpec:
    """Read the language model of a GLM-OCR, which has no biases unless it says so."""
    return glm4v(config.with_defaults({"attention_bias": False}))

"""Gemma 3: five sliding layers to one full, norms on queries and keys, no soft caps.

Source: transformers `Gemma3TextConfig`, `modeling_gemma3.py`; arXiv:2503.19786, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.gemma2 import DEFAULTS as GEMMA2
from trainplan.costmodel.model.families.gemma2 import gemma
from trainplan.costmodel.model.families.reader import HfConfig

DEFAULTS = {
    **GEMMA2,
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "rope_theta": 1_000_000.0,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "sliding_window_pattern": 6,
}
"""The published files of the 4B, 12B and 27B leave these to the class."""


def gemma3_text(config: HfConfig) -> ModelSpec:
    """Read the language model of a Gemma 3; the last of every pattern is a full layer."""
    config = config.with_defaults(DEFAULTS)
    layers = config.integer("num_hidden_layers")
    pattern = config.integer("sliding_window_pattern", "_sliding_window_pattern")
    return gemma(config, [(i + 1) % pattern != 0 for i in range(layers)], qk_norm="head")


def gemma3(config: HfConfig) -> ModelSpec:
    """Read the language model of a Gemma 3 with vision; the vision tower is not modelled."""
    return gemma3_text(config.section("text_config"))

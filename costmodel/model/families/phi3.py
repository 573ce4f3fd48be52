"""Phi-3 and Phi-4: Llama with a sliding window, projections fused.

Source: transformers `Phi3Config`, `modeling_phi3.py`; arXiv:2404.14219, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.reader import HfConfig, every_layer, listed_layers

DEFAULTS = {
    "head_dim": None,
    "num_key_value_heads": None,
    "sliding_window": None,
    "rms_norm_eps": 1e-5,
}


def phi3(config: HfConfig) -> ModelSpec:
    """Read a Phi-3; every layer slides where `sliding_window` is set."""
    config = config.with_defaults(DEFAULTS)
    window = config.optional_integer("sliding_window")
    return decoder(
        config,
        **listed_layers(config, window, every_layer(config)),
    )

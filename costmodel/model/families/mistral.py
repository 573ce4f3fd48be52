"""Mistral: Llama with a sliding window.

Source: transformers `MistralConfig`; arXiv:2310.06825, section 2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.reader import HfConfig, every_layer, listed_layers

DEFAULTS = {"head_dim": None, "sliding_window": 4096}


def mistral(config: HfConfig) -> ModelSpec:
    """Read a Mistral; every layer slides unless `sliding_window` is null."""
    config = config.with_defaults(DEFAULTS)
    window = config.optional_integer("sliding_window")
    return decoder(
        config,
        **listed_layers(config, window, every_layer(config)),
    )

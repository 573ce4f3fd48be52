"""Qwen2 and Qwen2.5: Llama with biases on query, key and value.

Source: transformers `Qwen2Config`, `modeling_qwen2.py`; arXiv:2407.10671, section 2.2.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.decoder import decoder
from trainplan.costmodel.model.families.reader import HfConfig, listed_layers

WINDOW_DEFAULTS = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
DEFAULTS = {**WINDOW_DEFAULTS, "head_dim": None}


def window(config: HfConfig) -> int | None:
    """Tokens of the window; `sliding_window` counts only with `use_sliding_window`."""
    return (
        config.optional_integer("sliding_window") if config.boolean("use_sliding_window") else None
    )


def upper_layers(config: HfConfig) -> tuple[bool, ...]:
    """Layers from `max_window_layers` on, which are those that slide."""
    first = config.count("max_window_layers")
    return tuple(i >= first for i in range(config.integer("num_hidden_layers")))


def qwen2(config: HfConfig) -> ModelSpec:
    """Read a Qwen2 or Qwen2.5."""
    config = config.with_defaults(DEFAULTS)
    return decoder(
        config,
        qkv_bias=True,
        **listed_layers(config, window(config), upper_layers(config)),
    )

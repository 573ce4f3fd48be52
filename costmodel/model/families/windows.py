"""How many layers attend to a sliding window."""

from __future__ import annotations

from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.model.families.reader import HfConfig

SLIDING, FULL = "sliding_attention", "full_attention"


def sliding_layers(config: HfConfig, window: int | None, otherwise: int) -> int:
    """Layers with a sliding window.

    Args:
        config: The file; its `layer_types`, where it has them, decide.
        window: Tokens of the window; null: no layer slides.
        otherwise: The count where `layer_types` is missing.
    """
    types = config.with_defaults({"layer_types": None}).texts("layer_types")
    layers = config.integer("num_hidden_layers")
    if types and len(types) != layers:
        raise SpecError(
            f"{config.where}: 'layer_types' has {len(types)} entries, "
            f"'num_hidden_layers' is {layers}; make them equal"
        )
    for kind in types:
        if kind not in (SLIDING, FULL):
            raise UnsupportedError(
                f"{config.where}: layer type {kind!r} is not modelled; known: {SLIDING}, {FULL}"
            )
    if window is None:
        return 0
    return types.count(SLIDING) if types else otherwise


def every_other_layer(config: HfConfig) -> int:
    """The first of every two layers (Gemma 2, gpt-oss)."""
    return (config.integer("num_hidden_layers") + 1) // 2

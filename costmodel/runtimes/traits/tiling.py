"""What a runtime computes tile by tile along the sequence, to hold one tile of it at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tiling:
    """Parts of a model that it can tile; how many tiles there are is its own rule."""

    mlp: bool = False
    """Dense gated MLPs: each tile runs forward again in front of its backward pass."""
    loss: bool = False
    """Output projection and loss: each tile runs both passes at once, so no logits are kept."""


UNTILED = Tiling()

"""One kind of block of a model."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.costmodel.blocks.parts import Module, PassSeconds
from trainplan.costmodel.layouts import FloatColumn


@dataclass(frozen=True, slots=True)
class Block:
    """One kind of block; columns have one row per distinct key."""

    forward: PassSeconds
    backward: PassSeconds
    weight: FloatColumn
    """Seconds of the backward pass that only the weight gradients need."""
    saved_bytes: FloatColumn
    """Activations kept from forward to backward where nothing is recomputed."""
    modules: tuple[Module, ...]
    """What selective recomputation may choose."""
    recompute_forward: PassSeconds
    """What full recomputation repeats of `forward`."""

"""One kind of block of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.blocks.parts import Module, PassSeconds, pass_seconds
from trainplan.costmodel.columns import FloatColumn


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
    host_ahead: FloatColumn
    """Seconds by which the host ends a backward pass after the GPU could, negative before it."""

    def __add__(self, other: Block) -> Block:
        """Both, one after the other."""
        return Block(
            self.forward + other.forward,
            self.backward + other.backward,
            weight=self.weight + other.weight,
            saved_bytes=self.saved_bytes + other.saved_bytes,
            modules=self.modules + other.modules,
            recompute_forward=self.recompute_forward + other.recompute_forward,
            host_ahead=self.host_ahead + other.host_ahead,
        )

    def forward_alone(self) -> Block:
        """The block where nothing behind it is trained: it runs forward, and nothing is kept.

        Source: derived; autograd records nothing where no input and no weight has a gradient.
        """
        size = len(self.weight)
        nothing, none = np.zeros(size), pass_seconds(size)
        return replace(
            self,
            backward=none,
            weight=nothing,
            saved_bytes=nothing,
            modules=(),
            recompute_forward=none,
            host_ahead=nothing,
        )

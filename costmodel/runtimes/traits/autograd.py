"""What the graph of single operations keeps for the backward pass, and makes in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Autograd:
    """Tensors beyond those of fused kernels; where all is zero or false there are none.

    Fused kernels keep the input and output of a norm, the input of an activation (of both branches
    where it is gated) and its output, and add weight gradients to the accumulated ones in place.
    """

    norm_fp32_copies: int = 0
    """fp32 tensors an RMSNorm keeps instead of its input; 0: its input as it is."""
    norm_statistics: bool = False
    """A norm keeps one fp32 number per token for every moment it takes."""
    every_norm: bool = True
    """Norms of queries and keys, second norms of a half and the one input of a parallel residual
    are counted as the model has them; else every layer counts as having two norms of its own."""
    activation_output: bool = False
    """A gated unit keeps the output of its activation for the product of both branches, and a
    ReLU keeps its output alone."""
    final_norm: bool = False
    """The input of the final norm is kept until the loss has run backward."""
    shared_layer_input: bool = True
    """A layer that full recomputation repeats keeps the very input that was held for it."""
    weight_gradients: bool = False
    """A weight gradient is a tensor of its own until it is added to the accumulated ones; one of
    a tied table lives from the head to the embedding."""


FUSED_KERNELS = Autograd()

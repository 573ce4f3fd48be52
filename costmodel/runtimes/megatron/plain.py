"""Megatron Core without Transformer Engine, Apex or a compiler: every operation is torch's own."""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.traits.footprint import Autograd


def plain(traits: RuntimeTraits) -> RuntimeTraits:
    """A runtime of Megatron Core as it is without them.

    Source: Megatron Core 0.16.1 `models/backends.py`, LocalSpecProvider; `transformer/mlp.py`, glu;
    `dot_product_attention.py`, repeat_interleave; PyTorch v2.13.0 `derivatives.yaml`: an RMSNorm
    keeps its input and what it scaled.
    """
    return replace(
        traits,
        kernels=replace(traits.kernels, attention="unfused", elementwise="eager"),
        footprint=replace(traits.footprint, repeats_key_values=True),
        autograd=Autograd(
            norm_fp32_copies=2,
            norm_statistics=True,
            activation_output=True,
            offset_branch=True,
            weighted_apart=True,
            rotated_copies=True,
        ),
    )

"""Megatron Core without Transformer Engine, Apex or a compiler: every operation is torch's own."""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.runtimes.megatron_lm import MEGATRON_LM
from trainplan.costmodel.runtimes.traits.footprint import Autograd

MEGATRON_PLAIN = replace(
    MEGATRON_LM,
    name="megatron-core",
    version="0.16.1",
    kernels=replace(MEGATRON_LM.kernels, attention="unfused", elementwise="eager"),
    footprint=replace(MEGATRON_LM.footprint, repeats_key_values=True),
    autograd=Autograd(
        norm_fp32_copies=2,
        norm_statistics=True,
        activation_output=True,
        offset_branch=True,
        weighted_apart=True,
        rotated_copies=True,
    ),
)
"""Source: Megatron Core 0.16.1 `models/backends.py`, LocalSpecProvider; `transformer/mlp.py`, glu;
`dot_product_attention.py`, repeat_interleave; PyTorch v2.13.0 `derivatives.yaml`: an RMSNorm keeps
its input and what it scaled."""

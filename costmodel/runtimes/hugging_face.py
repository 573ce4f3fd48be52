"""Layers of Hugging Face transformers as they run without a compiler, whatever shards them.

Source: huggingface/transformers `models/llama/modeling_llama.py` (projections apart, the norm as
single operations, the first of them a copy in fp32), `integrations/sdpa_attention.py` (the fused
core of torch) and `loss/loss_utils.py`, ForCausalLMLoss (the loss on an fp32 copy of all logits).
"""

from __future__ import annotations

from trainplan.costmodel.base import BYTES_BF16
from trainplan.costmodel.runtimes.traits import Kernels, Recompute
from trainplan.costmodel.runtimes.traits.footprint import Autograd
from trainplan.costmodel.runtimes.traits.kernels import EAGER_HEAD_BYTES

KERNELS = Kernels(
    attention="flash2",
    elementwise="eager",
    head_bytes_per_logit=EAGER_HEAD_BYTES + BYTES_BF16,  # the logits stay in the model's output
)
AUTOGRAD = Autograd(norm_fp32_copies=1, activation_output=True)
RECOMPUTE = Recompute(
    layers="all",  # modeling_layers.py, GradientCheckpointingLayer: every layer by itself
    stops_early=True,  # torch.utils.checkpoint, not reentrant
)

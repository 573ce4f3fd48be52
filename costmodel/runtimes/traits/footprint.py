"""Bytes that one runtime keeps and another does not, and tensors of single operations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from trainplan.costmodel.base import BYTES_BF16, BYTES_FP8, BYTES_FP32, GB
from trainplan.costmodel.job import RuntimeOptions
from trainplan.costmodel.runtimes.traits.settings import stated_or

LowPrecision = Literal["cached", "primary", "cast"]
PRIMARY_MESSAGE_BYTES = {"fp8": 1.0, "nvfp4": 0.5}
"""Bytes of one gathered weight of those that exist in low precision only; of others, as stored.

mxfp8 is gathered in 16 bits and cast by every rank, since its two copies have scales of their own.
Embedding and head stay in 16 bits, but are counted alike: a little too few bytes.
Source: Megatron-LM @d98e8a64 `distributed/param_and_grad_buffer.py:923` (uint8), 1163 (mxfp8 in
bf16) and 1183 (packed nvfp4); Megatron-Bridge @067f987d `training/mixed_precision.py`
(fp8_param_gather of delayed and current scaling, fp4_param_gather, of mxfp8 with
reuse_grad_buf_for_mxfp8_param_ag); NeMo @0a07447c `llm/recipes/precision/mixed_precision.py`.
"""

CONTEXT_BYTES = 0.55 * GB
"""CUDA context and libraries of one process.

Source: ai-dynamo/aiconfigurator system files, `other_mem`; agrees with nvidia-smi on idle jobs.
"""
COMMUNICATOR_BYTES = 0.4 * GB
"""NCCL buffers. Source: ai-dynamo/aiconfigurator system files, `nccl_mem` (0.34-0.41 GB)."""
OUTSIDE_BYTES = CONTEXT_BYTES + COMMUNICATOR_BYTES
"""Device memory the allocator does not manage.

Source: the driver allocates the context and NCCL its buffers, each apart from the other and from
the allocator, so their bytes add up.
"""


MOMENT_BYTES = {"fp32": BYTES_FP32, "bf16": BYTES_BF16, "fp16": BYTES_BF16, "fp8": BYTES_FP8}
"""Of one moment, by its type."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes beyond those that every runtime keeps."""

    low_precision: LowPrecision = "cached"
    """Below 16 bits: weights in 16 bits with low-precision copies kept between micro batches,
    low-precision weights alone, or a cast before each product that keeps nothing. In the first two
    products keep their inputs in low precision too."""
    moment_bytes: float = BYTES_FP32
    """One Adam moment of one parameter, mean of both."""
    master_bytes: int = BYTES_FP32
    """The copy that is updated of a weight in fewer than 4 bytes."""
    weight_bytes: int | None = None
    """A weight that products read, whatever their precision; null: as they need it."""
    sharded_weights_are_master: bool = False
    """A fully sharded weight is kept in fp32 only: there is no second copy in 16 bits."""
    updates_copies: bool = False
    """Weights are updated by way of a copy even where that has their type."""
    keeps_gathered_inputs: bool = False
    """The input that sequence parallelism gathers in front of a product is kept, not gathered
    again."""
    repeats_key_values: bool = False
    """Keys and values are repeated for every query head before attention, which keeps them so."""
    batch_first_attention: bool = False
    """Attention works on another order of dimensions, so its output is kept in both orders where a
    micro batch has several sequences."""
    weighted_experts: bool = False
    """Routing weights multiply inside the expert, so its output need not be kept."""
    reduce_bucket_elements: int = 0
    """Gradients that are copied into one buffer before they are reduced, under ZeRO-2 and 3; the
    buffer has its full size however small the model is."""
    workspaces: int = 0
    """Libraries that take scratch memory for matrix products from the allocator."""
    outside_bytes: float = OUTSIDE_BYTES
    """Context, libraries and communicators: device memory the allocator does not manage."""
    offloaded_layers: int = 0
    """Layers of a rank whose activations wait in host memory."""

    def outside(self, measured: float | None) -> float:
        """What a process takes outside the allocator: as measured, or as its runtime."""
        usual = self.outside_bytes == OUTSIDE_BYTES
        return measured if usual and measured is not None else self.outside_bytes

    def with_options(self, options: RuntimeOptions) -> Footprint:
        """That of a run that may state types of moments and of weights, and what it offloads.

        Weights scaled in blocks keep their 16 bits unless it is stated otherwise.
        Source: NVIDIA-NeMo/Megatron-Bridge @067f987d `training/mixed_precision.py`,
        bf16_with_fp8_subchannel_scaling_mixed: fp8_param_gather is false there alone.
        """
        stated = MOMENT_BYTES.get(options.moment_dtype or "")
        alone: LowPrecision = "primary" if options.fp8_param_gather else "cached"
        blocks = options.fp8_recipe == "blockwise"
        given = (blocks or options.fp8_param_gather is not None) and self.low_precision != "cast"
        return replace(
            self,
            low_precision=alone if given else self.low_precision,
            moment_bytes=stated_or(stated, self.moment_bytes),
            offloaded_layers=stated_or(options.offload_activation_layers, self.offloaded_layers),
        )


PLAIN = Footprint()


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
    gated_in_place: bool = False
    """The gradients of both branches of a gated unit are written where the branches were."""
    offset_branch: bool = False
    """A gated unit adds an offset, of zero, to its second branch: one tensor more."""
    weighted_separately: bool = False
    """Routing weights multiply the activation of an expert by an operation of its own, which keeps
    what it multiplies, as every operation of the router does."""
    rotated_copies: bool = False
    """Rotated queries and keys are kept beside what the projection made, of which the values are a
    part; so are cosines and sines, for queries and for keys."""
    weight_gradients: bool = False
    """A weight gradient is a tensor of its own until it is added to the accumulated ones; one of
    a tied table lives from the head to the embedding."""

    def with_options(self, options: RuntimeOptions) -> Autograd:
        """That of a run on kernels of Liger, where it states so.

        Source: linkedin/Liger-Kernel src/liger_kernel/ops/rms_norm.py and swiglu.py: saved for
        backward are the input and one number a token, and both branches, which take the gradients.
        """
        if options.liger is None:
            return self
        return replace(self, norm_fp32_copies=0, activation_output=False, gated_in_place=True)


FUSED_KERNELS = Autograd()

"""What Megatron Core has no fused kernel for: torch operations, each a pass over memory of its own.

Bytes are those of tensors read and written by every operation, counted on the operations that torch
runs (tests/oracles/test_separate_operations.py).
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.blocks.exchanges import dispatched_by
from trainplan.costmodel.blocks.parts import Shapes
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.kernels import elementwise_seconds
from trainplan.costmodel.model import expert_hidden, query_columns

BIAS_KERNELS, BIAS_KERNELS_BACKWARD = 2, 6
"""Kernels of the biases of one local expert. Forward: bias times routing weight, sum. Backward: for
bias and weight a product and its sum each, and two gradients of biases added to the accumulated.

Source: derived; as `expert_bias_operations`, and Megatron Core `distributed_data_parallel.py`,
`param.main_grad.add_`.
"""
CLAMP_KERNELS, CLAMP_KERNELS_BACKWARD = 3, 7
"""Kernels of a clamped unit beside its fused one. Source: as `clamp_operations`."""
ROTATION_KERNELS, ROTATION_KERNELS_BACKWARD = 24, 12
"""Kernels of both rotations: cosine and sine, scaled and cast, then those of `rotation_operations`.
Source: as there."""


Moved: TypeAlias = tuple[FloatColumn, FloatColumn]
"""Bytes moved per element, forward and backward."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Seconds of some operations in both passes of one micro batch; zero where they are fused."""

    forward: FloatColumn
    backward: FloatColumn


def expert_bias_operations(
    shapes: Shapes, rows: FloatColumn, local_experts: FloatColumn
) -> Operations:
    """Adding the bias of the second product, times the routing weight, to each expert's rows.

    The bias of the first product is added and summed inside the products.

    Source: `expert_bias_bytes`; Megatron Core `moe/experts.py`, `skip_bias_add=False` for the first
    product; Transformer Engine @d0067d0d `module/grouped_linear.py`, use_bias.
    """
    moe = shapes.job.model.moe
    if moe is None or not moe.expert_bias or not separates_experts(shapes):
        return _none(shapes)
    each = expert_bias_bytes(shapes.storage, _weight_bytes(shapes))
    kernels = BIAS_KERNELS * local_experts, BIAS_KERNELS_BACKWARD * local_experts
    return _operations(shapes, rows * expert_hidden(shapes.job.model), each, kernels)


def expert_bias_bytes(storage: int, weight_bytes: FloatColumn | int) -> Moved:
    """Bytes moved per element of the experts' output, with routing weights of so many bytes.

    Forward: the product is written; it and the output are read and their sum written; the sums of
    all experts are put together. Backward, for bias and weight each: a product read and written and
    a sum read; the gradients are put together. In storage precision 6 and 8 elements; wider routing
    weights widen them all, and output and gradient are cast: 2 and 4 more in storage precision.

    Source: derived; Megatron Core @d98e8a64 (alike in d7288711, b0cc2706 and 0d8e0714)
    `moe/experts.py`, TEGroupedMLP._apply_bias; PyTorch `derivatives.yaml`.
    """
    wide = np.maximum(storage, weight_bytes)
    casts = wide > storage
    return 6.0 * wide + 2 * storage * casts, 8.0 * wide + 4 * storage * casts


def clamp_operations(shapes: Shapes, elements: FloatColumn) -> Operations:
    """Clamping both inputs of a gated unit with so many outputs, before its fused kernel.

    Source: `gated_clamp_bytes`.
    """
    if shapes.job.model.swiglu_limit is None or not separates_experts(shapes):
        return _none(shapes)
    one = np.ones(shapes.size)
    kernels = CLAMP_KERNELS * one, CLAMP_KERNELS_BACKWARD * one
    return _operations(shapes, elements, gated_clamp_bytes(shapes.storage), kernels)


def gated_clamp_bytes(storage: int) -> Moved:
    """Bytes moved per output of a gated unit to clamp its inputs.

    Forward: each half is read and written, then both to put them together. Backward: three
    comparisons read an element and write a mask, two of which are combined; the gradients of both
    halves are selected by their masks and put together.

    Source: derived; Megatron Core @d98e8a64 `fusions/fused_bias_geglu.py`,
    weighted_bias_quick_geglu_impl; PyTorch `FunctionsManual.cpp`, clamp_backward.
    """
    one = np.ones(())
    return 8.0 * storage * one, (11.0 * storage + 8) * one


def rotation_operations(shapes: Shapes) -> Operations:
    """Rotating queries and keys where cosine and sine are scaled, which the fused kernel refuses.

    Source: `rotation_bytes`; Megatron Core @d98e8a64 `rope_utils.py`, apply_rotary_pos_emb ("mscale
    is not supported by TE's fused RoPE").
    """
    if not separates_rotation(shapes):
        return _none(shapes)
    model, one = shapes.job.model, np.ones(shapes.size)
    rotated = model.num_key_value_heads * model.head_dim + query_columns(model)
    kernels = ROTATION_KERNELS * one, ROTATION_KERNELS_BACKWARD * one
    elements = shapes.tokens * rotated / shapes.table.tp
    return _operations(shapes, elements, rotation_bytes(shapes.storage), kernels)


def rotation_bytes(storage: int) -> Moved:
    """Bytes moved per rotated element.

    Forward: a half is negated, both halves put together, two products, their sum, a copy. Backward:
    two products, a half negated, halves put together, two sums.

    Source: derived; Megatron Core @d98e8a64 `rope_utils.py`, _apply_rotary_pos_emb_bshd.
    """
    one = np.ones(())
    return 12.0 * storage * one, 13.0 * storage * one


def separates_rotation(shapes: Shapes) -> bool:
    """Does the runtime rotate queries and keys by operations of their own?"""
    return shapes.traits.kernels.separate_operations and scales_rotation(shapes.job.model)


def scales_rotation(model: ModelSpec) -> bool:
    """Does YaRN scale cosine and sine? Latent attention has kernels of its own for it.

    Source: Peng et al., YaRN, arXiv:2309.00071, section 3.4: 0.1 ln(s) + 1; Megatron Core
    `yarn_rotary_pos_embedding.py`, _yarn_get_concentration_factor.
    """
    scaling = model.rope_scaling
    if scaling is None or model.mla or scaling.rope_type != "yarn" or scaling.factor <= 1:
        return False
    return scaling.mscale is None or scaling.mscale != scaling.mscale_all_dim


def separates_experts(shapes: Shapes) -> bool:
    """Are biases and clamps of experts operations of their own?

    Those that need rows per expert on the host cannot be captured: a graph of the whole step takes
    the fused operations. Source: Megatron Core @d98e8a64 `moe/experts.py`, remarks in _apply_bias;
    Megatron-Bridge @067f987d `perf_recipes/gpt_oss/common.py`, use_transformer_engine_op_fuser.
    """
    return (
        shapes.traits.kernels.separate_operations
        and shapes.traits.host.cuda_graph != "full_iteration"
    )


def _weight_bytes(shapes: Shapes) -> FloatColumn:
    """Bytes of a routing weight: what sends a token once carries fp32 alone.

    Source: Megatron Core @d98e8a64 `moe/token_dispatcher.py`, "only supports float32 probs".
    """
    experts = shapes.traits.experts
    once = dispatched_by(shapes, experts.SENDS_ONCE)
    return np.where(once, BYTES_FP32, experts.routing_weight_bytes).astype(np.float64)


def _operations(
    shapes: Shapes, elements: FloatColumn, each: Moved, kernels: tuple[FloatColumn, FloatColumn]
) -> Operations:
    machine, launch = shapes.machine, shapes.machine.constants.launch_seconds
    forward, backward = (
        elementwise_seconds(machine, elements * moved) + launch * count
        for moved, count in zip(each, kernels, strict=True)
    )
    return Operations(forward, backward)


def _none(shapes: Shapes) -> Operations:
    zero = np.zeros(shapes.size)
    return Operations(zero, zero)

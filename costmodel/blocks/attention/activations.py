"""Activations that the attention half of a layer keeps from forward to backward."""

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_FP8
from trainplan.costmodel.blocks.activations import (
    query_key_norm_bytes,
    rotates_heads,
    rotation_bytes_kept,
    rotation_tables,
)
from trainplan.costmodel.blocks.attention.key_values import kept_key_value_width
from trainplan.costmodel.blocks.parts import Shapes
from trainplan.costmodel.blocks.residual import MASK_BYTES, mask_bytes, residual_bytes
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.model import core_dims, output_gate_columns, query_columns, value_columns

LSE_BYTES = 4
"""Log-sum-exp kept per head and token. Source: Dao, arXiv:2307.08691, section 3.1."""


def saved_bytes(shapes: Shapes) -> FloatColumn:
    """Activations of the attention half and of both norms that backward needs.

    Per token: layer input, both norm outputs and the residual between (8 h, cut by sequence
    parallelism); queries, keys, values, core output and log-sum-exp (cut by tp); with MLA also the
    latents; what norms keep beyond that (`blocks/activations.py`). In fp8 a product keeps its
    input in 1 byte.
    Source: Korthikanti et al., arXiv:2205.05198, section 4.1, for flash attention, grouped queries
    and no dropout; `Footprint` for what runtimes add.
    """
    model = shapes.job.model
    residual = residual_bytes(shapes)
    outputs = value_columns(model) * (1 + reorders_output(shapes)) + _gated_columns(model)
    held = (query_columns(model) + outputs) / shapes.table.tp + kept_key_value_width(shapes)
    if model.mixer == "sparse_attention" and model.mla:  # its core reads and writes latents
        columns = model.num_attention_heads * sum(core_dims(model)) + value_columns(model)
        held = columns / shapes.table.tp
    autograd = shapes.traits.autograd
    sharded = rotation_bytes_kept(shapes) + query_key_norm_bytes(model, autograd, shapes.storage)
    latent = 0
    if model.mla:
        latent = 2 * (model.mla.q_lora_rank or 0) + 2 * model.mla.kv_lora_rank
        latent += model.mla.qk_rope_head_dim
    held = held + latent / shapes.residual_shards
    per_token = residual + sharded / shapes.table.tp + shapes.storage * held
    masks = mask_bytes(shapes) / shapes.residual_shards
    positions = shapes.tokens / shapes.table.micro_batch_size
    tables = shapes.storage * positions * rotation_tables(model, autograd)
    kept = shapes.tokens * (per_token + masks) + core_bytes(shapes) + tables
    return kept - _freed_by_narrow_inputs(shapes)


def narrow_columns(shapes: Shapes) -> FloatColumn | float:
    """Columns of queries, keys and values that wait in 8 bits on a rank; 0: none.

    The output of the core is kept in 16 bits.
    Source: NVIDIA/TransformerEngine `pytorch/attention/dot_product_attention/backends.py`,
    FusedAttnFunc: fp8_tensors, with NVTE_FP8_DPA_BWD and NVTE_DPA_FP8CS_O_in_F16 as by default.
    """
    model = shapes.job.model
    if not shapes.job.options.fp8_attention or (model.mixer == "sparse_attention" and model.mla):
        return 0.0
    return query_columns(model) / shapes.table.tp + kept_key_value_width(shapes)


def _freed_by_narrow_inputs(shapes: Shapes) -> FloatColumn | float:
    return (shapes.storage - BYTES_FP8) * shapes.tokens * narrow_columns(shapes)


def narrowing_bytes(shapes: Shapes) -> FloatColumn | float:
    """Bytes moved to cast them: read for their largest value, read again and written.

    Source: NVIDIA/TransformerEngine, Float8CurrentScaling.
    """
    return (2 * shapes.storage + BYTES_FP8) * shapes.tokens * narrow_columns(shapes)


def _gated_columns(model: ModelSpec) -> int:
    """Columns kept where a gate multiplies the output: the gate, and their product."""
    if model.attention_output_gate == "none":
        return 0
    return output_gate_columns(model) + value_columns(model)


def reorders_output(shapes: Shapes) -> BoolColumn:
    """Is the output of the core kept in two orders of dimensions? Source: that of `Footprint`."""
    footprint, unfused = shapes.traits.footprint, shapes.traits.kernels.attention == "unfused"
    ordered = unfused or not footprint.batch_first_attention
    return np.asarray((shapes.table.micro_batch_size > 1) & (not ordered))


def core_bytes(shapes: Shapes) -> FloatColumn:
    """What backward needs of the attention core beside its inputs and its output.

    Fused: the log-sum-exp. Unfused: output of the softmax, and with dropout also its mask and its
    output. Source: Dao, arXiv:2307.08691, section 3.1; Korthikanti et al., section 4.1 (5 a s^2 b).
    """
    heads = shapes.tokens * shapes.job.model.num_attention_heads / shapes.table.tp
    if shapes.traits.kernels.attention != "unfused":
        return LSE_BYTES * heads
    score = 2 * shapes.storage + MASK_BYTES if shapes.traits.kernels.dropout else shapes.storage
    return score * heads * shapes.job.training.seq_length


def dropped_core_bytes(shapes: Shapes) -> FloatColumn:
    """What is not kept of the core where it runs again: `core_bytes`, less inputs kept instead.

    Where heads are repeated and rotated keys and values are kept as they were before, and beside
    them what the projection made, of which the values are a part.
    Source: Megatron Core `transformer/attention.py`, _checkpointed_attention_forward, whose
    arguments are the rotated queries and keys and the values.
    """
    model, autograd = shapes.job.model, shapes.traits.autograd
    shared = model.num_key_value_heads < model.num_attention_heads
    if not (shared and autograd.rotated_copies and rotates_heads(model)):
        return core_bytes(shapes)
    queries, keys = model.num_attention_heads, model.num_key_value_heads
    heads = 3 * keys - queries if model.qk_norm == "none" else keys - 2 * queries
    more = shapes.storage * shapes.tokens * heads * model.head_dim / shapes.table.tp
    return core_bytes(shapes) - more

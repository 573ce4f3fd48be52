"""What norms and activation functions keep for the backward pass, by runtime.

Norms of a layer as a module that recomputation may choose.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_FP8, BYTES_FP32
from trainplan.costmodel.blocks.parts import Module, Part, Shapes
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.kernels import elementwise_seconds
from trainplan.costmodel.model import halves, norms_per_layer
from trainplan.costmodel.runtimes import Autograd


def norm_extra_bytes(model: ModelSpec, autograd: Autograd, storage_bytes: int) -> float:
    """Bytes per token that one norm keeps beyond its input and output as they are stored.

    Copies in fp32 stand in for the input of an RMSNorm; a moment is one number (LayerNorm, which is
    one operation everywhere, takes two).
    """
    instead = (_copied_bytes(model, autograd) or storage_bytes) - storage_bytes
    moments = (2 if model.norm == "layernorm" else 1) if autograd.norm_statistics else 0
    return instead * model.hidden_size + BYTES_FP32 * moments


def layer_norms_extra_bytes(model: ModelSpec, autograd: Autograd, storage_bytes: int) -> float:
    """Bytes per token that a layer's norms keep beyond an input and an output of each half.

    A norm behind a half keeps the output of that half. Halves in parallel read one input, which
    both norms keep as one.
    """
    one = norm_extra_bytes(model, autograd, storage_bytes)
    if not autograd.every_norm:
        return halves(model) * one
    count, row = norms_per_layer(model), storage_bytes * model.hidden_size
    shared = model.parallel_residual and not _copied_bytes(model, autograd)
    return count * one + (count - halves(model) - shared) * row


def query_key_norm_bytes(model: ModelSpec, autograd: Autograd, storage_bytes: int) -> float:
    """Bytes per token that norms of queries and keys keep: their inputs.

    Their outputs are rotated, and a rotation keeps neither of its ends.
    """
    if not autograd.every_norm or model.qk_norm == "none" or model.mla:
        return 0.0
    heads = model.num_attention_heads + model.num_key_value_heads
    moments = (2 if model.qk_norm == "full" else heads) if autograd.norm_statistics else 0
    element = _copied_bytes(model, autograd) or storage_bytes
    return element * heads * model.head_dim + BYTES_FP32 * moments


def _copied_bytes(model: ModelSpec, autograd: Autograd) -> int:
    """Bytes per element of the copies that an RMSNorm keeps instead of its input."""
    return 0 if model.norm == "layernorm" else BYTES_FP32 * autograd.norm_fp32_copies


def activation_tensors(model: ModelSpec, autograd: Autograd) -> int:
    """Tensors of the MLP's width kept around the activation: its inputs and outputs.

    Fused: both branches and the product (gated), or input and output. One operation each: also the
    output of the activation where it is gated, and of a ReLU the output alone.
    """
    branches = 1 if model.gated_mlp else 0
    offset = branches * autograd.offset_branch
    if not autograd.activation_output:
        return 2 + branches + offset
    return (1 if model.activation == "relu" else 2) + 2 * branches + offset


def narrow_inputs(shapes: Shapes) -> int:
    """Inputs of an activation that wait in 8 bits for the backward pass; 0: none.

    Source: Megatron-LM @d98e8a64 `core/fusions/fused_bias_swiglu.py`, fp8_input_store: cast
    forward, and back before the gradient.
    """
    return 2 if shapes.job.options.activation_func_fp8_input_store else 0


def narrowing_bytes(shapes: Shapes) -> int:
    """Bytes moved per element of its width in either pass to cast them. Source: as above."""
    return narrow_inputs(shapes) * (shapes.storage + BYTES_FP8)


def rotation_bytes_kept(shapes: Shapes) -> FloatColumn:
    """Bytes per token that rotations keep, of all heads, beyond queries, keys and values.

    A norm before the rotation keeps what the projection made, all of it, since keys are a part; so
    are the queries of a rank with one group of them.
    Source: Megatron Core `common/embeddings/rope_utils.py`, _apply_rotary_pos_emb_bshd: rotated
    ones are new tensors, and the products keep the cosines and sines.
    """
    model, tp = shapes.job.model, shapes.table.tp
    if not shapes.traits.autograd.rotated_copies or not rotates_heads(model):
        return np.zeros(shapes.size)
    queries, keys = model.num_attention_heads, model.num_key_value_heads
    normed = model.qk_norm != "none"
    if keys < queries:  # repeated keys and values are copies of their own
        heads = normed * (np.where(tp < keys, queries, 0.0) + keys)
    else:
        heads = np.where(normed, 0.0, 2.0 * queries) + np.zeros(shapes.size)
    return np.asarray(shapes.storage * heads * model.head_dim)


def rotates_heads(model: ModelSpec) -> bool:
    """Are queries and keys of plain heads rotated?"""
    return model.position_embedding == "rope" and model.mla is None


def rotation_tables(model: ModelSpec, autograd: Autograd) -> float:
    """Numbers per position of the sequence in cosines and sines that are kept. Source: as above."""
    if not autograd.rotated_copies or not rotates_heads(model):
        return 0.0
    return 4.0 * int(model.head_dim * model.partial_rotary_factor)


def norm_module(shapes: Shapes, separate_norms: int) -> Module:
    """Norms of one layer that can be recomputed: those not fused into the product behind them.

    Their output is kept in the precision of that product.
    Source: Megatron Core gpt_layer_specs.py (MLA's and an expert layer's norms).
    """
    machine, hidden = shapes.machine, shapes.job.model.hidden_size
    element = shapes.input_bytes
    normed = separate_norms * shapes.tokens * hidden / shapes.residual_shards
    moved = elementwise_seconds(machine, 2 * shapes.storage * normed)
    launch = separate_norms * machine.constants.launch_seconds
    return Module("layernorm", moved + launch, element * normed)


def router_bytes_kept(shapes: Shapes, rows: FloatColumn) -> FloatColumn:
    """Bytes that a router of single operations keeps beyond two probabilities of every expert.

    The chosen weights, and those of the rows that experts weigh. Of sigmoids the scores before they
    are divided by their sums, twice, for the balancing loss has its own.
    Source: Megatron Core `moe/moe_utils.py`, topk_routing_with_score_function and
    compute_routing_scores_for_aux_loss; PyTorch `derivatives.yaml`, sigmoid (its result), div
    (both operands), masked_select (what is selected from).
    """
    moe = shapes.job.model.moe
    if moe is None or not shapes.traits.autograd.weighted_separately:
        return np.zeros(shapes.size)
    tokens = shapes.tokens / shapes.residual_shards
    divided = (moe.num_experts + 2) * (moe.router_score_function == "sigmoid")
    return BYTES_FP32 * (tokens * (moe.num_experts_per_tok + divided) + rows)


def with_output_gate(shapes: Shapes, shared: Part) -> Part:
    """Shared experts, and what is kept where a gate multiplies their output: that and its score.

    Source: Megatron Core `moe/shared_experts.py`, forward; PyTorch `derivatives.yaml`, mul (both
    factors) and sigmoid (its result).
    """
    model = shapes.job.model
    if model.moe is None or not model.moe.shared_expert_gate:
        return shared
    gated = shapes.tokens / shapes.residual_shards * shapes.storage * (model.hidden_size + 1)
    whole, *others = shared.modules
    whole = replace(whole, dropped_bytes=whole.dropped_bytes + gated)
    return replace(shared, saved_bytes=shared.saved_bytes + gated, modules=(whole, *others))

"""The attention half of a layer: norm, projections, core, output, residual."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.base import BYTES_FP8
from trainplan.costmodel.blocks.attention.context import context_exchange, context_sums, core_pieces
from trainplan.costmodel.blocks.attention.key_values import (
    attention_exchange,
    kept_key_value_width,
    key_value_columns,
    key_value_width,
    shared_heads,
)
from trainplan.costmodel.blocks.operations import rotation_operations, separates_rotation
from trainplan.costmodel.blocks.parts import Module, Part, PassSeconds, Shapes, pass_seconds
from trainplan.costmodel.blocks.saved import layer_norms_extra_bytes, query_key_norm_bytes
from trainplan.costmodel.layouts import BoolColumn, FloatColumn
from trainplan.costmodel.machine.compute import (
    ForwardBackward,
    Product,
    elementwise_seconds,
    fused_attention_seconds,
    linear_seconds,
    unfused_attention_seconds,
)
from trainplan.costmodel.model.params import attention_span, query_columns, value_columns
from trainplan.costmodel.spec import ModelSpec

RESIDUAL_PASSES = 10
"""Elements moved per token and hidden unit by two norms and two residual additions, fused.

Source: derived: norm reads 1 and writes 1, residual reads 2 and writes 1, twice each.
"""
LEGACY_RESIDUAL_PASSES = 13
"""As above with bias, dropout and its mask in the residual kernel.

Source: Megatron-LM `fused_bias_dropout.py`, bias_dropout_add: mask written, bias and mask read.
"""
ROPE_PASSES = 3
"""Elements moved per rotated one. Source: x cos + rotate(x) sin reads an element and its operand,
and writes the element: three."""
KERNELS = 9
"""Kernels of one dense layer forward beside the products. Source: trace of a TE layer."""
MASK_BYTES = 1
"""One element of a dropout mask. Source: arXiv:2205.05198, section 4.1."""
LSE_BYTES = 4
"""Log-sum-exp kept per head and token. Source: Dao, arXiv:2307.08691, section 3.1."""


def attention_flop(model: ModelSpec, seq_length: int, tokens: FloatColumn) -> FloatColumn:
    """Forward FLOPs of the attention core over all heads of a layer.

    Source: Dao, arXiv:2307.08691, section 4.1: 4 s^2 d per head; `attention_span`.
    """
    span = attention_span(model, seq_length)
    return 2.0 * tokens * span * (query_columns(model) + value_columns(model))


def attention_part(shapes: Shapes) -> Part:
    """Attention with its tensor- and context-parallel traffic, and both norms of the layer."""
    size = shapes.size
    projections, ups = _projections(shapes)
    core = _core(shapes)
    moved, rotation = _moved_bytes(shapes), rotation_operations(shapes)
    fixed = KERNELS * shapes.machine.constants.launch_seconds
    exchange, sums = context_exchange(shapes, core), context_sums(shapes)
    heads, copies = shared_heads(shapes)
    tensor = attention_exchange(shapes)
    backward_factor = shapes.machine.constants.elementwise_backward
    forward = pass_seconds(
        size,
        gemm=projections.forward,
        attention=core.forward,
        elementwise=elementwise_seconds(shapes.machine, moved)
        + fixed
        + sums.forward
        + rotation.forward
        + copies.forward,
        tp_comm=tensor.forward + heads.forward,
        cp_comm=exchange.forward,
    )
    backward = pass_seconds(
        size,
        gemm=projections.backward,
        attention=core.backward,
        elementwise=backward_factor * elementwise_seconds(shapes.machine, moved)
        + 1.5 * fixed
        + sums.backward
        + rotation.backward
        + copies.backward
        + _bias_seconds(shapes),
        tp_comm=tensor.backward + heads.backward,
        cp_comm=exchange.backward,
    )
    modules = _modules(shapes, core.forward + exchange.forward + sums.forward, ups)
    kept, tail = saved_bytes(shapes), pass_seconds(size)
    return Part(forward, backward, projections.weight, kept, modules, tail)


def _bias_seconds(shapes: Shapes) -> FloatColumn:
    """Gradients of the biases of both projections. Source: `Shapes.bias_seconds`."""
    model = shapes.job.model
    columns = (query_columns(model) + key_value_columns(model)) / shapes.table.tp
    inputs = shapes.bias_seconds(columns, stated=model.qkv_bias)
    columns = model.hidden_size / shapes.residual_shards
    return inputs + shapes.bias_seconds(columns, stated=model.attention_output_bias)


def _modules(shapes: Shapes, core: FloatColumn, ups: ForwardBackward) -> tuple[Module, ...]:
    """The core with its exchange, whose log-sum-exp is dropped, and the up-projections of MLA."""
    modules: tuple[Module, ...] = (Module("core_attn", core, core_bytes(shapes)),)
    if shapes.traits.recompute.policy == "torchtitan_selective_op" and shapes.job.model.mla is None:
        modules = (*modules, selected_operations(shapes))
    if shapes.job.model.mla is None:
        return modules
    up_bytes = shapes.storage * shapes.tokens * _up_columns(shapes.job.model) / shapes.table.tp
    return (*modules, Module("mla_up_proj", ups.forward, up_bytes))


def selected_operations(shapes: Shapes) -> Module:
    """What torchtitan's policy repeats of the attention half: keys, output projection, norms.

    Every second product of a layer is repeated, the core is kept, but not its inputs.
    Source: pytorch/torchtitan `parallelize_llama.py`, `_apply_ac_to_transformer_block`.
    """
    model, tp, zero = shapes.job.model, shapes.table.tp, np.zeros(shapes.size)
    width = model.num_key_value_heads * model.head_dim
    keys = Product(shapes.tokens, width / tp, zero + model.hidden_size)
    output = Product(shapes.tokens, zero + model.hidden_size, value_columns(model) / tp)
    products = linear_seconds(shapes.machine, shapes.machine.linear, [keys, output])
    moved = elementwise_seconds(shapes.machine, _moved_bytes(shapes))
    rows = 4 / shapes.residual_shards + gathered_rows(shapes) - selected_rows(shapes)
    copies = kept_key_value_width(shapes) - key_value_width(shapes)
    columns = rows * model.hidden_size + width / tp + copies
    dropped = shapes.storage * shapes.tokens * columns
    return Module("torchtitan_selective_op", products.forward + moved, dropped)


def all_but_projections(shapes: Shapes, again: PassSeconds, kept: FloatColumn) -> list[Module]:
    """What MaxText's policy repeats of a layer, which keeps its input, queries, keys and values.

    `again` is a layer that is repeated in full, `kept` what one keeps that is not.
    Source: AI-Hypercomputer/maxtext `src/maxtext/layers/decoders.py`, save_qkv_proj.
    """
    model, tp = shapes.job.model, shapes.table.tp
    if shapes.traits.recompute.policy != "maxtext_save_qkv_proj" or model.mla:
        return []
    width = query_columns(model) + key_value_columns(model)
    inputs = Product(shapes.tokens, width / tp, np.zeros(shapes.size) + model.hidden_size)
    products = linear_seconds(shapes.machine, shapes.machine.linear, [inputs])
    still = shapes.tokens * (model.hidden_size / shapes.residual_shards + width / tp)
    dropped = kept - shapes.storage * still
    return [Module("maxtext_save_qkv_proj", again.total - products.forward, dropped)]


def selected_rows(shapes: Shapes) -> FloatColumn:
    """Rows of the hidden size that torchtitan's policy keeps of a layer, for each token.

    The layer's input, and what tensor ranks reduced and scattered. The product that ends the layer
    is kept too, with what was reduced of it, though no backward pass reads either: a compiler sees
    that and drops both, single operations keep them.
    Source: pytorch/torchtitan `parallelize_llama.py`, `_save_list`; tests/oracles/test_selected.py.
    """
    reduced = (shapes.table.tp > 1) / shapes.residual_shards
    unread = 1 + reduced if shapes.traits.kernels.elementwise == "eager" else 0.0
    return np.asarray(1 / shapes.residual_shards + reduced + unread)


def gathered_rows(shapes: Shapes) -> FloatColumn:
    """Rows of the hidden size, as stored, that gathered inputs of products add to a rank's own.

    Source: `Footprint.keeps_gathered_inputs`; gathered in 8 bits where products take those.
    """
    footprint, training = shapes.traits.footprint, shapes.job.training
    element = BYTES_FP8 if training.casts else shapes.storage
    rows = 2 * element / shapes.storage * (1 - 1 / shapes.residual_shards)
    return np.asarray(rows * footprint.keeps_gathered_inputs)


def saved_bytes(shapes: Shapes) -> FloatColumn:
    """Activations of the attention half and of both norms that backward needs.

    Per token: layer input, both norm outputs and the residual between (8 h, cut by sequence
    parallelism); queries, keys, values, core output and log-sum-exp (cut by tp); with MLA also the
    latents; what norms keep beyond that (costmodel/blocks/saved.py). In fp8 a product keeps its
    input in 1 byte.
    Source: Korthikanti et al., arXiv:2205.05198, section 4.1, for flash attention, grouped queries
    and no dropout; `Footprint` for what runtimes add.
    """
    model = shapes.job.model
    rows = 3 if shapes.keeps_cast_inputs else 4
    norms = layer_norms_extra_bytes(model, shapes.traits.autograd, shapes.storage)
    residual = (rows * shapes.storage * model.hidden_size + norms) / shapes.residual_shards
    masks = 2 * MASK_BYTES * model.hidden_size if shapes.traits.kernels.dropout else 0
    residual = residual + shapes.storage * model.hidden_size * gathered_rows(shapes)
    outputs = value_columns(model) * (1 + reorders_output(shapes))
    held = (query_columns(model) + outputs) / shapes.table.tp + kept_key_value_width(shapes)
    sharded = query_key_norm_bytes(model, shapes.traits.autograd, shapes.storage)
    latent = 0
    if model.mla:
        latent = 2 * (model.mla.q_lora_rank or 0) + 2 * model.mla.kv_lora_rank
        latent += model.mla.qk_rope_head_dim
    held = held + latent / shapes.residual_shards
    per_token = residual + sharded / shapes.table.tp + shapes.storage * held
    return shapes.tokens * (per_token + masks / shapes.residual_shards) + core_bytes(shapes)


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


def _up_columns(model: ModelSpec) -> int:
    if model.mla is None:
        return 0
    return query_columns(model) + key_value_columns(model)


def _projections(shapes: Shapes) -> tuple[ForwardBackward, ForwardBackward]:
    """All projections, and the up-projections of MLA alone."""
    model, tokens, tp = shapes.job.model, shapes.tokens, shapes.table.tp
    h, mla, rate = model.hidden_size, model.mla, shapes.machine.linear

    def product(n: FloatColumn | float, k: FloatColumn | float) -> Product:
        return Product(tokens, np.zeros(shapes.size) + n, np.zeros(shapes.size) + k)

    output = product(h, value_columns(model) / tp)
    if mla is None:
        width = (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
        products, ups = [product(width / tp, h), output], []
    else:
        heads = model.num_attention_heads
        ups = [product(heads * (mla.qk_nope_head_dim + mla.v_head_dim) / tp, mla.kv_lora_rank)]
        ups.append(product(query_columns(model) / tp, mla.q_lora_rank or h))
        own = Product(tokens / shapes.residual_shards, output.n, output.n)  # h columns, h inputs
        widths = [mla.kv_lora_rank + mla.qk_rope_head_dim, mla.q_lora_rank or 0]
        downs = [replace(own, n=0 * own.n + width) for width in widths if width]
        products = [*downs, *ups, output]
    return (
        linear_seconds(shapes.machine, rate, products, shapes.gradient_bytes),
        linear_seconds(shapes.machine, rate, ups, shapes.gradient_bytes),
    )


def _core(shapes: Shapes) -> ForwardBackward:
    model, table, traits = shapes.job.model, shapes.table, shapes.traits
    seq_length = shapes.job.training.seq_length
    heads = model.num_attention_heads
    dims = query_columns(model) // heads, value_columns(model) // heads
    if traits.kernels.attention == "unfused":
        rows = shapes.tokens * heads / table.tp
        return unfused_attention_seconds(
            shapes.machine, rows, seq_length, dims, dropout=traits.kernels.dropout
        )
    flop = attention_flop(model, seq_length, shapes.tokens) / table.tp
    speed = 1.0
    if traits.kernels.attention == "flash2" and shapes.machine.architecture == "hopper":
        speed = shapes.machine.constants.flash2_on_hopper
    calls, cut = core_pieces(shapes)
    rows = table.micro_batch_size * heads / (table.tp * cut)
    sizes = flop, seq_length, dims
    return fused_attention_seconds(shapes.machine, *sizes, rows=rows, speed=speed, calls=calls)


def _moved_bytes(shapes: Shapes) -> FloatColumn:
    """Bytes moved forward by norms, residual additions and rotation.

    Source: the three constants; a rotation by operations of its own is not in it.
    """
    model, tokens = shapes.job.model, shapes.tokens
    legacy = shapes.traits.kernels.elementwise == "legacy"
    passes = LEGACY_RESIDUAL_PASSES if legacy else RESIDUAL_PASSES
    norms = passes * (1.5 if model.norm_position == "both" else 1.0)
    rotated = (model.num_key_value_heads * model.head_dim + query_columns(model)) / shapes.table.tp
    fused_rope = model.position_embedding == "rope" and not separates_rotation(shapes)
    rope = fused_rope * ROPE_PASSES * rotated
    fused = tokens * (norms * model.hidden_size / shapes.residual_shards + rope)
    return shapes.eager * shapes.storage * fused

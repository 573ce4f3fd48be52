"""The attention half of a layer: norm, projections, core, output, residual."""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import LowRankSpec, ModelSpec
from trainplan.costmodel.blocks.attention.activations import (
    dropped_core_bytes,
    narrowing_bytes,
    saved_bytes,
)
from trainplan.costmodel.blocks.attention.context import context_exchange, context_sums, core_pieces
from trainplan.costmodel.blocks.attention.kernels import kernel_speed
from trainplan.costmodel.blocks.attention.key_values import (
    attention_exchange,
    kept_key_value_width,
    key_value_columns,
    key_value_width,
    shared_heads,
)
from trainplan.costmodel.blocks.attention.packed import Core, packed_core
from trainplan.costmodel.blocks.operations import rotation_operations, separates_rotation
from trainplan.costmodel.blocks.parts import Module, Part, PassSeconds, Shapes, pass_seconds
from trainplan.costmodel.blocks.residual import (
    FEED_FORWARD_KERNELS,
    gathered_rows,
    residual_columns,
)
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.kernels import (
    ForwardBackward,
    Product,
    elementwise_seconds,
    fused_attention_seconds,
    linear_seconds,
    unfused_attention_seconds,
)
from trainplan.costmodel.mixers import attention_span, kernel_length
from trainplan.costmodel.model import (
    core_dims,
    output_gate_columns,
    projected_columns,
    query_columns,
    value_columns,
)

ROPE_PASSES = 3
"""Elements moved per rotated one. Source: x cos + rotate(x) sin reads an element and its operand,
and writes the element: three."""
KERNELS = 9
"""Kernels of one dense layer forward beside the products. Source: trace of a TE layer."""
SELECTED_SPEED = 0.72
"""Speed of the gradients of attention to listed keys, over that of fused attention at its best.

Source: derived; NVIDIA/cudnn-frontend pull request 318, 4,096 queries of 64 heads of 512 on SM100:
0.560, 1.233, 2.155 and 4.019 ms for 128, 512, 1,024 and 2,048 keys, a line of 1.80 us a key (746
TFLOP/s; a B200's attention reaches 1,031) and 0.336 ms.
"""
SELECTED_MORE = 187
"""Keys that take what such a kernel takes beside its keys. Source: derived; as SELECTED_SPEED."""
GATE_PASSES = 3
"""Elements moved per element of a gated output.

Source: derived; one kernel reads the output of the core and the gate, and writes their product:
three; Megatron Core `transformer/attention.py`, _apply_output_gate.
"""


def attention_flop(model: ModelSpec, seq_length: int, tokens: FloatColumn) -> FloatColumn:
    """Forward FLOPs of the attention core over all heads of a layer.

    Source: Dao, arXiv:2307.08691, section 4.1: 4 s^2 d per head; `attention_span`.
    """
    span = attention_span(model, seq_length)
    return 2.0 * tokens * span * (model.num_attention_heads * sum(core_dims(model)))


def attention_part(shapes: Shapes) -> Part:
    """Attention with its tensor- and context-parallel traffic, and both norms of the layer."""
    size = shapes.size
    projections, ups = _projections(shapes)
    core = _core(shapes)
    moved = _moved_bytes(shapes) + narrowing_bytes(shapes)
    rotation = rotation_operations(shapes)
    fixed = _kernels(shapes.job.model) * shapes.machine.constants.launch_seconds
    exchange, sums = context_exchange(shapes, core), context_sums(shapes)
    heads, copies = shared_heads(shapes)
    tensor = attention_exchange(shapes, projections)
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


def _kernels(model: ModelSpec) -> int:
    """Kernels of the layer beside the products. Source: KERNELS and FEED_FORWARD_KERNELS."""
    gate = model.attention_output_gate != "none"
    return KERNELS - (model.feed_forward == "none") * FEED_FORWARD_KERNELS + gate


def _bias_seconds(shapes: Shapes) -> FloatColumn:
    """Gradients of the biases of both projections. Source: `Shapes.bias_seconds`."""
    model = shapes.job.model
    width = query_columns(model) + output_gate_columns(model) + key_value_columns(model)
    inputs = shapes.bias_seconds(width / shapes.table.tp, stated=model.qkv_bias)
    columns = model.hidden_size / shapes.residual_shards
    return inputs + shapes.bias_seconds(columns, stated=model.attention_output_bias)


def _modules(shapes: Shapes, core: FloatColumn, ups: ForwardBackward) -> tuple[Module, ...]:
    """The core with its exchange, whose log-sum-exp is dropped, and the up-projections of MLA."""
    modules: tuple[Module, ...] = (Module("core_attn", core, dropped_core_bytes(shapes)),)
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
    products = linear_seconds(shapes.machine, shapes.linear, [keys, output])
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
    products = linear_seconds(shapes.machine, shapes.linear, [inputs])
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


def _up_columns(model: ModelSpec) -> int:
    if model.mla is None:
        return 0
    if model.mixer == "sparse_attention":  # whose core reads the latents of keys and values
        return model.num_attention_heads * core_dims(model)[0]
    return query_columns(model) + key_value_columns(model)


def _low_rank_output(shapes: Shapes, low: LowRankSpec) -> list[Product]:
    """Each group of heads to its part of the rank, and the rank to the hidden state."""
    model, tp, groups = shapes.job.model, shapes.table.tp, low.output_groups
    part, zero = (low.output_rank or 0) / tp, np.zeros(shapes.size)
    grouped = Product(shapes.tokens * groups, part / groups, value_columns(model) / tp / groups)
    return [grouped, Product(shapes.tokens, zero + model.hidden_size, part)]


def _projections(shapes: Shapes) -> tuple[ForwardBackward, ForwardBackward]:
    """All projections, and the up-projections of MLA alone."""
    model, tokens, tp = shapes.job.model, shapes.tokens, shapes.table.tp
    h, mla, rate = model.hidden_size, model.mla, shapes.linear

    def product(n: FloatColumn | float, k: FloatColumn | float) -> Product:
        return Product(tokens, np.zeros(shapes.size) + n, np.zeros(shapes.size) + k)

    output = product(h, value_columns(model) / tp)
    width = projected_columns(model) + output_gate_columns(model)
    ups: list[Product] = []
    if mla is None and model.low_rank:
        low, queries = model.low_rank, query_columns(model)
        down = product(low.query_rank, h)
        down = replace(down, m=down.m / shapes.residual_shards)
        products = [product((width - queries) / tp, h), down, product(queries / tp, low.query_rank)]
        products += _low_rank_output(shapes, low) if low.output_rank else [output]
    elif mla is None:
        products = [product(width / tp, h), output]
    else:
        heads = model.num_attention_heads
        ups = [product(heads * (mla.qk_nope_head_dim + mla.v_head_dim) / tp, mla.kv_lora_rank)]
        ups.append(product(query_columns(model) / tp, mla.q_lora_rank or h))
        own = Product(tokens / shapes.residual_shards, output.n, output.n)  # h columns, h inputs
        widths = [mla.kv_lora_rank + mla.qk_rope_head_dim, mla.q_lora_rank or 0]
        downs = [replace(own, n=0 * own.n + width) for width in widths if width]
        gate = output_gate_columns(model)
        products = [*downs, *ups, output, *([product(gate / tp, h)] if gate else [])]
    return (
        linear_seconds(shapes.machine, rate, products, shapes.gradient_bytes),
        linear_seconds(shapes.machine, rate, ups, shapes.gradient_bytes),
    )


def _core(shapes: Shapes) -> ForwardBackward:
    model, table, traits = shapes.job.model, shapes.table, shapes.traits
    seq_length, heads = shapes.job.training.seq_length, model.num_attention_heads
    dims = core_dims(model)
    if traits.kernels.attention == "unfused":
        rows = shapes.tokens * heads / table.tp
        kernels = {"dropout": traits.kernels.dropout, "legacy": traits.kernels.of_2021}
        return unfused_attention_seconds(shapes.machine, rows, seq_length, dims, **kernels)
    flop = attention_flop(model, seq_length, shapes.tokens) / table.tp
    calls, cut = core_pieces(shapes)
    length = kernel_length(model, seq_length)
    rows = table.micro_batch_size * heads * (seq_length / length) / (table.tp * cut)
    whole = Core(flop, length, rows)
    core = packed_core(shapes, shapes.tokens, whole)
    sizes = core.flop, core.length, dims
    kernel = traits.kernels.attention
    seconds = fused_attention_seconds(
        shapes.machine,
        *sizes,
        rows=core.rows,
        speed=kernel_speed(shapes.machine, kernel, core.length),
        calls=calls,
        slow_start=kernel == "flash" and length >= seq_length,
    )
    if model.mixer == "sparse_attention" or model.key_compression:
        return replace(seconds, backward=_selected_backward(shapes, dims))
    return seconds


def _selected_backward(shapes: Shapes, dims: tuple[int, int]) -> FloatColumn:
    """Seconds of the gradients of attention to keys that each token has a list of.

    Source: SELECTED_SPEED and SELECTED_MORE; five products of a query, key or value.
    """
    machine, model = shapes.machine, shapes.job.model
    rows = shapes.tokens * model.num_attention_heads / shapes.table.tp
    keys = attention_span(model, shapes.job.training.seq_length) + SELECTED_MORE
    flop = 2 * rows * keys * (3 * dims[0] + 2 * dims[1])
    rate = SELECTED_SPEED * machine.attention_max_efficiency * machine.half.peak_flop_per_second
    return flop / rate + machine.constants.attention_fixed_seconds


def _moved_bytes(shapes: Shapes) -> FloatColumn:
    """Bytes moved forward by norms, residual additions, rotation and gate.

    Source: the constants and `residual_columns`; a rotation by operations of its own is not in it.
    """
    model, tokens = shapes.job.model, shapes.tokens
    rotated = (model.num_key_value_heads * model.head_dim + query_columns(model)) / shapes.table.tp
    fused_rope = model.position_embedding == "rope" and not separates_rotation(shapes)
    rope = fused_rope * ROPE_PASSES * rotated
    gated = value_columns(model) if model.attention_output_gate != "none" else 0
    gate = GATE_PASSES * gated / shapes.table.tp
    fused = tokens * (residual_columns(shapes) + rope + gate)
    return shapes.eager * shapes.storage * fused

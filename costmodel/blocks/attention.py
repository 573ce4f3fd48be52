"""The attention half of a layer: norm, projections, core, output, residual."""

from __future__ import annotations

import numpy as np

from costmodel.blocks.parts import Module, Part, Shapes, pass_seconds
from costmodel.comm.collectives import P2P_ALPHA
from costmodel.comm.topology import group
from costmodel.compute import (
    ELEMENTWISE_BACKWARD,
    LAUNCH_SECONDS,
    ForwardBackward,
    Product,
    attention_seconds,
    elementwise_seconds,
    linear_seconds,
)
from costmodel.params import query_columns, value_columns
from costmodel.spec.model import ModelSpec
from costmodel.table import FloatColumn
from costmodel.units import BYTES_BF16, BYTES_FP32

RESIDUAL_BYTES = 20
"""Bytes moved per token and hidden unit by two norms and two residual additions, fused.

Source: derived: norm reads 2 and writes 2, residual reads 4 and writes 2, twice each.
"""
ROPE_BYTES = 6
"""Bytes moved per rotated element. Source: derived: read, write, and the cos/sin operands."""
KERNELS = 9
"""Kernels of one dense layer forward beside the products. Source: trace of a TE layer."""
LSE_BYTES = 4
"""Log-sum-exp kept per head and token. Source: Dao, arXiv:2307.08691, section 3.1."""


def key_value_columns(model: ModelSpec) -> int:
    """Width of the keys and values together, all heads, as attention reads them."""
    if model.mla:
        per_head = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim
        return model.num_attention_heads * per_head
    return 2 * model.num_key_value_heads * model.head_dim


def attention_flop(model: ModelSpec, seq_length: int, tokens: FloatColumn) -> FloatColumn:
    """Forward FLOPs of the attention core over all heads, mean over the layers.

    Source: Dao, arXiv:2307.08691, section 4.1: 4 s^2 d per head, halved by the causal mask;
    a window of w tokens sees w instead of s / 2.
    """
    windowed = model.num_sliding_window_layers / model.num_hidden_layers
    window = min(model.sliding_window or seq_length, seq_length / 2)
    span = windowed * window + (1 - windowed) * seq_length / 2
    return 2.0 * tokens * span * (query_columns(model) + value_columns(model))


def attention_part(shapes: Shapes) -> Part:
    """Attention with its tensor- and context-parallel traffic, and both norms of the layer."""
    size = shapes.size
    projections, ups = _projections(shapes)
    core = _core(shapes)
    moved = _moved_bytes(shapes)
    fixed = KERNELS * LAUNCH_SECONDS
    exchange = _context_exchange(shapes, core)
    forward = pass_seconds(
        size,
        gemm=projections.forward,
        attention=core.forward,
        elementwise=elementwise_seconds(shapes.machine, moved) + fixed,
        tp_comm=shapes.tp_exchange,
        cp_comm=exchange.forward,
    )
    backward = pass_seconds(
        size,
        gemm=projections.backward,
        attention=core.backward,
        elementwise=ELEMENTWISE_BACKWARD * elementwise_seconds(shapes.machine, moved) + 1.5 * fixed,
        tp_comm=shapes.tp_exchange + shapes.tp_regather,
        cp_comm=exchange.backward,
    )
    return Part(forward, backward, saved_bytes(shapes), _modules(shapes, core, ups))


def _modules(shapes: Shapes, core: ForwardBackward, ups: ForwardBackward) -> tuple[Module, ...]:
    """The core, whose log-sum-exp is dropped, and the up-projections of MLA."""
    lse = LSE_BYTES * shapes.tokens * shapes.job.model.num_attention_heads / shapes.table.tp
    modules = (Module("core_attn", core.forward, lse),)
    if shapes.job.model.mla is None:
        return modules
    up_bytes = BYTES_BF16 * shapes.tokens * _up_columns(shapes.job.model) / shapes.table.tp
    return (*modules, Module("mla_up_proj", ups.forward, up_bytes))


def norm_module(shapes: Shapes, separate_norms: int) -> Module:
    """Norms of one layer that can be recomputed: those not fused into the product behind them.

    Their output is kept in the precision of that product.
    Source: Megatron Core gpt_layer_specs.py (MLA's and an expert layer's norms).
    """
    machine, hidden = shapes.machine, shapes.job.model.hidden_size
    normed = separate_norms * shapes.tokens * hidden / shapes.residual_shards
    moved = elementwise_seconds(machine, 2 * BYTES_BF16 * normed)
    launch = separate_norms * LAUNCH_SECONDS
    return Module("layernorm", moved + launch, machine.linear.element_bytes * normed)


def saved_bytes(shapes: Shapes) -> FloatColumn:
    """Activations of the attention half and of both norms that backward needs.

    Per token: layer input, both norm outputs and the residual between (8 h, cut by sequence
    parallelism); queries, keys, values, core output and log-sum-exp (cut by tp); with MLA also the
    latents. In fp8 a product keeps its input in 1 byte. Source: Korthikanti et al.,
    arXiv:2205.05198, section 4.1, for flash attention, grouped queries and no dropout; agrees
    with 24 measured B200 runs within 1 %.
    """
    model = shapes.job.model
    rows = 4 if shapes.machine.linear.element_bytes == BYTES_BF16 else 3
    residual = rows * BYTES_BF16 * model.hidden_size / shapes.residual_shards
    sharded = (
        BYTES_BF16 * (query_columns(model) + key_value_columns(model) + value_columns(model))
        + BYTES_FP32 * model.num_attention_heads
    )
    latent = 0
    if model.mla:
        latent = 2 * (model.mla.q_lora_rank or 0) + 2 * model.mla.kv_lora_rank
        latent += model.mla.qk_rope_head_dim
    return shapes.tokens * (residual + sharded / shapes.table.tp + BYTES_BF16 * latent)


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
        downs = [product(mla.kv_lora_rank + mla.qk_rope_head_dim, h)]
        downs += [product(mla.q_lora_rank, h)] if mla.q_lora_rank else []
        products = [*downs, *ups, output]
    return (
        linear_seconds(shapes.machine, rate, products),
        linear_seconds(shapes.machine, rate, ups),
    )


def _core(shapes: Shapes) -> ForwardBackward:
    model, table = shapes.job.model, shapes.table
    length = shapes.job.training.seq_length / table.cp
    flop = attention_flop(model, shapes.job.training.seq_length, shapes.tokens) / table.tp
    head_dim = query_columns(model) // model.num_attention_heads
    value_dim = value_columns(model) // model.num_attention_heads
    return attention_seconds(shapes.machine, flop, length, min(head_dim, value_dim))


def _moved_bytes(shapes: Shapes) -> FloatColumn:
    """Bytes moved forward by norms, residual additions and rotation.

    Source: RESIDUAL_BYTES and ROPE_BYTES.
    """
    model, tokens = shapes.job.model, shapes.tokens
    norms = RESIDUAL_BYTES * (1.5 if model.norm_position == "both" else 1.0)
    rotated = model.num_key_value_heads * model.head_dim + query_columns(model)
    rope = ROPE_BYTES * rotated / shapes.table.tp if model.position_embedding == "rope" else 0.0
    return tokens * (norms * model.hidden_size / shapes.residual_shards + rope)


def _context_exchange(shapes: Shapes, core: ForwardBackward) -> ForwardBackward:
    """Ring exchange of keys and values, hidden behind the attention of the previous chunk.

    Source: Liu et al., Ring Attention, arXiv:2310.01889, section 3; backward also sends gradients.
    """
    table, machine = shapes.table, shapes.machine
    kv_bytes = BYTES_BF16 * shapes.tokens * key_value_columns(shapes.job.model) / table.tp
    ring = group(machine, table.cp, table.tp)
    link = machine.bus_bytes_per_second[1][0]
    one_nic = ring.nic_bytes_per_second / ring.inside  # one message leaves a domain per step
    wire = np.where(ring.nodes > 1, np.minimum(link, one_nic), link)
    step = P2P_ALPHA + ring.fabric_seconds + kv_bytes / wire
    return ForwardBackward(
        (table.cp - 1) * np.maximum(0.0, step - core.forward / table.cp),
        (table.cp - 1) * np.maximum(0.0, 2 * step - core.backward / table.cp),
    )

"""Linear attention: convolution, chunks of the delta rule or of given decays, gated norm."""

from dataclasses import replace

from trainplan.costmodel.architecture import LinearAttentionSpec, ModelSpec
from trainplan.costmodel.blocks.mixers.carried import Carried, carried_part
from trainplan.costmodel.blocks.parts import Module, Part, Shapes
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.kernels import elementwise_seconds
from trainplan.costmodel.mixers import core_products, linear_input_columns, linear_of

DELTA_KERNELS = 11
"""Kernels of the delta rule beside the projections: convolution, norm of queries and keys, gates,
repeated heads, sums of decays, the inverse, its products, states, outputs, gated norm, order of
dimensions.

Source: derived; Megatron Core @d98e8a64 `ssm/gated_delta_net/gdn.py`; fla-org/flash-linear-
attention 0.6.0 `ops/gated_delta_rule/chunk.py`, chunk_gated_delta_rule_fwd.
"""
GATED_NORM_PASSES = 5
"""Elements moved for each element of a gated norm: output of the core and gate are read, the normed
one is written, then read and written in the order of the projection behind it.

Source: derived; as DELTA_KERNELS.
"""
LIGHTNING_KERNELS = 4
"""Of lightning attention: activation, blocks, norm, gate. Source: derived; transformers
`modeling_minimax.py`, MiniMaxLightningAttention, whose blocks a kernel holds (arXiv:2405.17381)."""


def linear_attention_part(shapes: Shapes) -> Part:
    """Linear attention with the norms of its layer."""
    seq_length = shapes.job.training.seq_length
    part = carried_part(shapes, linear_attention_sizes(shapes.job.model, seq_length))
    return replace(part, modules=(gated_norm(shapes),))


def gated_norm(shapes: Shapes) -> Module:
    """The gated norm, whose output is dropped and made again, and dealt out to context ranks again.

    Source: Megatron Core @d98e8a64 `ssm/gated_delta_net/common.py`, _gated_norm_and_a2a;
    GATED_NORM_PASSES.
    """
    value = linear_of(shapes.job.model).value_width / shapes.table.tp
    output = shapes.storage * shapes.tokens * value
    moved = elementwise_seconds(shapes.machine, shapes.eager * GATED_NORM_PASSES * output)
    launch = shapes.machine.constants.launch_seconds
    links = group(shapes.machine, shapes.table.cp, shapes.table.tp * shapes.table.gtp)
    dealt = collective_seconds(shapes.machine, "alltoall", output, links)
    return Module("gdn_norm_out", moved + launch + dealt, output)


def linear_attention_sizes(model: ModelSpec, seq_length: int) -> Carried:
    """What linear attention moves and keeps."""
    linear = linear_of(model)
    sizes = _lightning if linear.rule == "lightning" else _delta
    return sizes(linear, model, seq_length)


def _lightning(linear: LinearAttentionSpec, model: ModelSpec, seq_length: int) -> Carried:
    """Queries, keys and values with an activation, a state on chip, a norm and a gate.

    Kept: what the activation reads and writes, the output of the core, of the norm, the gate and
    the gated output. Source: derived; as LIGHTNING_KERNELS.
    """
    projected, value = 2 * linear.key_width + linear.value_width, linear.value_width
    return Carried(
        columns=linear_input_columns(linear),
        outputs=value,
        products=core_products(model, seq_length),
        moved=3 * projected + value + 2 * value + 3 * value,
        kept=2 * projected + 4 * value,
        kept_fp32=0,
        kernels=LIGHTNING_KERNELS,
    )


def _delta(linear: LinearAttentionSpec, model: ModelSpec, seq_length: int) -> Carried:
    """The delta rule, with decays of a head or of each channel.

    Kept: the output of the input projection, queries and keys normed and repeated to all value
    heads, values, the inverse of each chunk, the output of the core, its norm, the gate and the
    gated output; decays in fp32.
    Source: Megatron Core @d98e8a64 `ssm/gated_delta_net/common.py`, _prepare_input_for_gated_delta_
    rule and _apply_gated_norm; flash-linear-attention 0.6.0 `ops/gated_delta_rule/chunk.py` and
    `ops/kda/chunk.py`, save_for_backward (the latter keeps scores beside the inverse).
    """
    key, value, heads = linear.key_width, linear.value_width, linear.num_value_heads
    repeated = heads * linear.key_head_dim
    rank, chunk = linear.gate_rank, min(linear.chunk_size, seq_length)
    columns = linear_input_columns(linear)
    decays = repeated if rank else heads
    triangles = heads * chunk * (2 if rank else 1)
    low = 2 * rank if rank else 0
    return Carried(
        columns=columns,
        outputs=value,
        products=core_products(model, seq_length),
        moved=_moved(linear, chunk) + 4 * decays,
        kept=columns + 2 * key + 2 * repeated + 5 * value + triangles + low,
        kept_fp32=decays + heads,
        kernels=DELTA_KERNELS + (2 if rank else 0),
        inner=((key, rank), (value, rank)) if rank else (),
        whole=(2 * rank,) if rank else (),
    )


def _moved(linear: LinearAttentionSpec, chunk: int) -> float:
    """Elements that convolution, preparation, core and gated norm move for a token.

    Convolution and norm of queries and keys read and write once, heads are repeated, values and
    gate copied. The inverse reads keys and is written; its products read it with keys and values;
    states read keys and those products and are written with the new values; outputs read queries,
    keys, new values and states. Norm and gate read two tensors and write one, which is reordered.
    Source: derived; as DELTA_KERNELS.
    """
    key, value, heads = linear.key_width, linear.value_width, linear.num_value_heads
    each = linear.key_head_dim
    prepared = 2 * (2 * key + value) + 4 * key + 2 * (key + heads * each) + 4 * value
    states = 2 * each * linear.value_head_dim / chunk
    core = heads * (6 * each + 6 * linear.value_head_dim + 2 * chunk + states)
    return prepared + core + GATED_NORM_PASSES * value

"""Keys and values: their width on a rank, and what it takes where ranks outnumber their heads.

Tensor-parallel traffic of the attention half, whose gathered inputs may be latents.
"""

from collections.abc import Sequence

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.blocks.parts import Shapes, gathered_share, traffic_left
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.comm import Collective, collective, collective_seconds, group
from trainplan.costmodel.kernels import ForwardBackward, elementwise_seconds, sum_columns
from trainplan.costmodel.model import grouped_columns, query_columns, value_columns

COPY_PASSES = 2
"""Elements moved for each gathered one, either way: it is read and written where its columns come
next to each other. Source: derived; Megatron Core `tensor_parallel/mappings.py`, torch.cat in
_gather_along_last_dim and _reduce_scatter_along_last_dim."""


def key_value_columns(model: ModelSpec) -> int:
    """Width of the keys and values together, all heads, as attention reads them."""
    if model.mla:
        per_head = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim
        return model.num_attention_heads * per_head
    return grouped_columns(model)


def key_value_width(shapes: Shapes) -> FloatColumn:
    """Width of the keys and values that one tensor rank holds: never less than a whole head.

    Source: Ainslie et al., GQA, arXiv:2305.13245, section 2.2; Megatron Core
    `transformer/attention.py`, num_query_groups_per_partition.
    """
    return key_value_columns(shapes.job.model) * _replicas(shapes) / shapes.table.tp


def kept_key_value_width(shapes: Shapes) -> FloatColumn:
    """Width of the keys and values that attention keeps on one tensor rank.

    Source: `Footprint.repeats_key_values`; tests/oracles/test_repeated_heads.py, where a compiler
    keeps them repeated too, since the backward pass of attention reads them from memory.
    """
    model, width = shapes.job.model, key_value_width(shapes)
    if model.mla or not shapes.traits.footprint.repeats_key_values:
        return width
    whole = query_columns(model) + value_columns(model)
    return np.maximum(width, whole / shapes.table.tp)


def _replicas(shapes: Shapes) -> FloatColumn:
    """Tensor ranks that hold the same key-value head. Source: as `key_value_width`."""
    model, tp = shapes.job.model, shapes.table.tp
    return np.ones(shapes.size) if model.mla else np.maximum(1.0, tp / model.num_key_value_heads)


def shares_heads(shapes: Shapes) -> BoolColumn:
    """Do several tensor ranks hold one key-value head, whose weights are cut among them?"""
    return np.asarray((_replicas(shapes) > 1) & shapes.traits.communication.gathers_shared_heads)


def shared_heads(shapes: Shapes) -> tuple[ForwardBackward, ForwardBackward]:
    """Exchange of all queries, keys and values among the tensor ranks, and the copies around it.

    Their joint weights are cut evenly, so no rank has whole heads: the output is gathered, and a
    rank takes its own; backward the gradient is reduce-scattered. Nothing runs beside either.
    Source: Megatron Core @d98e8a64 `transformer/attention.py`, get_query_key_value_tensors, and
    `tensor_parallel/mappings.py`, _AllGatherFromTensorParallelRegion.
    """
    machine, zero = shapes.machine, np.zeros(shapes.size)
    shared = shares_heads(shapes)
    if not shared.any():
        none = ForwardBackward(zero, zero, zero)
        return none, none
    model = shapes.job.model
    columns = query_columns(model) + key_value_columns(model)
    whole = shared * shapes.storage * shapes.tokens * columns
    links = group(machine, shapes.table.tp, np.ones_like(shapes.table.tp))
    gather, scatter = (
        shared * collective_seconds(machine, name, whole, links)
        for name in ("all_gather", "reduce_scatter")
    )
    copies = elementwise_seconds(machine, COPY_PASSES * whole)
    return ForwardBackward(gather, scatter, zero), ForwardBackward(copies, copies, zero)


def attention_exchange(shapes: Shapes, products: ForwardBackward) -> ForwardBackward:
    """Seconds of both passes' exchanges of the attention half, beside its products.

    Latent attention projects down on each rank's own tokens under sequence parallelism, so latents
    are gathered and their gradients scattered, where other attention does so with its input: one
    collective for queries, one for keys and values, one for the rotated part of the keys. Without
    it the gradients of both latents are all-reduced.
    Source: `shapes`; Megatron Core @d98e8a64 `transformer/multi_latent_attention.py`,
    _qkv_down_projection and get_query_key_value_tensors.
    """
    model, zero = shapes.job.model, np.zeros(shapes.size)
    if model.mla is None:
        return shapes.exposed_exchange(products)
    latents = (model.mla.q_lora_rank or model.hidden_size, model.mla.kv_lora_rank)
    gathered = (*latents, model.mla.qk_rope_head_dim)
    machine = shapes.machine
    links = group(machine, shapes.table.tp, np.ones_like(shapes.table.tp))
    operations = ("all_gather", "reduce_scatter", "all_reduce")
    gather, scatter, reduce = (collective(machine, name, links) for name in operations)
    column = shapes.storage * shapes.tokens
    cast = column * gathered_share(shapes)
    fetched = _seconds(gather, cast, gathered)
    parallel = shapes.table.sequence_parallel == 1
    again = parallel & (not shapes.traits.footprint.keeps_gathered_inputs)
    again = again & (shapes.job.model.trained is None)

    def left(shares: tuple[FloatColumn, FloatColumn, float]) -> tuple[FloatColumn, FloatColumn]:
        """Both passes, with these shares of gathers, of scatters and of the repeated gather."""
        gathers, scatters, repeats = shares
        forward = fetched * gathers + scatter.seconds(column * model.hidden_size) * scatters
        backward = gather.seconds(cast * model.hidden_size) * gathers
        backward = backward + _seconds(scatter, column, gathered) * scatters
        return (
            np.where(parallel, forward, reduce.seconds(column * model.hidden_size)),
            np.where(parallel, backward, _seconds(reduce, column, latents))
            + again * repeats * (fetched * gathers),
        )

    exposed = left((shapes.gather_exposed, shapes.tp_exposed, machine.constants.regather_exposed))
    wire = left((np.ones(1), np.ones(1), 1.0))
    return ForwardBackward(
        traffic_left(exposed[0], wire[0], products.forward),
        traffic_left(exposed[1], wire[1], products.backward),
        zero,
    )


def _seconds(one: Collective, column_bytes: FloatColumn, widths: Sequence[int]) -> FloatColumn:
    """A collective for each of several tensors of so many columns.

    Source: as `attention_exchange`.
    """
    return sum_columns(one.seconds(column_bytes * width) for width in widths)

"""Tensor-parallel traffic of the attention half, whose gathered inputs may be latents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainplan.costmodel.blocks.parts import Shapes
from trainplan.costmodel.comm import group
from trainplan.costmodel.comm.collectives import Collective, collective
from trainplan.costmodel.layouts import FloatColumn
from trainplan.costmodel.machine.compute import ForwardBackward, sum_columns


def attention_exchange(shapes: Shapes) -> ForwardBackward:
    """Seconds of both passes' exchanges of the attention half.

    Latent attention projects down on each rank's own tokens under sequence parallelism, so latents
    are gathered and their gradients scattered, where other attention does so with its input: one
    collective for queries, one for keys and values, one for the rotated part of the keys. Without
    it the gradients of both latents are all-reduced.
    Source: `shapes`; Megatron Core @d98e8a64 `transformer/multi_latent_attention.py`,
    _qkv_down_projection and get_query_key_value_tensors.
    """
    model, zero = shapes.job.model, np.zeros(shapes.size)
    if model.mla is None:
        backward = shapes.tp_exchange + shapes.tp_regather
        return ForwardBackward(shapes.tp_exchange, backward, zero)
    latents = (model.mla.q_lora_rank or model.hidden_size, model.mla.kv_lora_rank)
    gathered = (*latents, model.mla.qk_rope_head_dim)
    machine = shapes.machine
    links = group(machine, shapes.table.tp, np.ones_like(shapes.table.tp))
    operations = ("all_gather", "reduce_scatter", "all_reduce")
    gather, scatter, reduce = (collective(machine, name, links) for name in operations)
    column = shapes.storage * shapes.tokens
    cast = column * machine.linear.element_bytes / machine.storage_bytes  # as products take them
    fetched = _seconds(gather, cast, gathered)
    parallel = shapes.table.sequence_parallel == 1
    forward = np.where(
        parallel,
        fetched + scatter.seconds(column * model.hidden_size),
        reduce.seconds(column * model.hidden_size),
    )
    backward = np.where(
        parallel,
        gather.seconds(cast * model.hidden_size) + _seconds(scatter, column, gathered),
        _seconds(reduce, column, latents),
    )
    again = parallel & (not shapes.traits.footprint.keeps_gathered_inputs)
    repeated = again * machine.constants.regather_exposed * fetched
    exposed = shapes.tp_exposed
    return ForwardBackward(forward * exposed, (backward + repeated) * exposed, zero)


def _seconds(one: Collective, column_bytes: FloatColumn, widths: Sequence[int]) -> FloatColumn:
    """A collective for each of several tensors of so many columns.

    Source: as `attention_exchange`.
    """
    return sum_columns(one.seconds(column_bytes * width) for width in widths)

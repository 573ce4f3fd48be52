"""Tensor-parallel traffic of the attention half, whose gathered inputs may be latents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.blocks.parts import Shapes
from costmodel.comm.collectives import collective_seconds
from costmodel.comm.topology import Group, group
from costmodel.compute import ForwardBackward, sum_columns
from costmodel.table import FloatColumn


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
    whole = (model.hidden_size,)
    links = group(shapes.machine, shapes.table.tp, np.ones_like(shapes.table.tp))
    gather = _seconds(shapes, "all_gather", gathered, links)
    parallel = shapes.table.sequence_parallel == 1
    forward = np.where(
        parallel,
        gather + _seconds(shapes, "reduce_scatter", whole, links),
        _seconds(shapes, "all_reduce", whole, links),
    )
    scattered = _seconds(shapes, "reduce_scatter", gathered, links)
    backward = np.where(
        parallel,
        _seconds(shapes, "all_gather", whole, links) + scattered,
        _seconds(shapes, "all_reduce", latents, links),
    )
    again = parallel & (not shapes.traits.footprint.keeps_gathered_inputs)
    repeated = again * shapes.machine.constants.regather_exposed * gather
    exposed = shapes.tp_exposed
    return ForwardBackward(forward * exposed, (backward + repeated) * exposed, zero)


def _seconds(shapes: Shapes, operation: str, widths: Sequence[int], links: Group) -> FloatColumn:
    """Collectives over tensors of so many columns, gathered as products take them.

    Source: as `costmodel.blocks.parts.shapes`.
    """
    machine = shapes.machine
    element = machine.linear.element_bytes / machine.storage_bytes
    element = shapes.storage * (element if operation == "all_gather" else 1.0)
    return sum_columns(
        collective_seconds(machine, operation, element * shapes.tokens * width, links)
        for width in widths
    )

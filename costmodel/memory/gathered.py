"""Buffers of generalised tensor parallelism: gathered weights, and whole gradients of weights.

Every shape has one of each kind, which all layers share and which is kept between passes.
Source: NVIDIA/Megatron-LM @d98e8a64 `core/tensor_parallel/generalized_tensor_parallelism.py`,
GTPWeightCache (its key: shape, type, direction in low precision, expert), _wgrad_buf_pool, and
_GTP_GROUPED_BUF_PARITY_COUNTER (experts of two blocks at once).
"""

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import ClassRows
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.shards import (
    Gathered,
    gathered_weights,
    matrix_shards,
    table_weights,
    wire_bytes,
)

BLOCKS_AT_ONCE = 2
"""Blocks whose experts are gathered at one time: the running and the prefetched one."""


def gathered_bytes(candidates: Candidates, ranks: Ranks) -> ClassRows:
    """Of each rank class; a class is taken to have layers of every kind.

    Source: as this module.
    """
    job, table = candidates.job, candidates.table
    if not matrix_shards(table):
        return np.zeros((1, 1))
    width, gradient = wire_bytes(job), candidates.traits.gradients.accumulated_bytes
    directions = 1 + job.training.casts
    total = np.zeros(len(table))
    for model, one in _shapes(job.model):
        parts = one.parts(table)
        copies = directions * (BLOCKS_AT_ONCE if one.experts else 1) + one.repeated(table)
        each = width * copies + gradient * (1 + 1 / parts)
        total += (parts > 1) * one.elements(model, table) * each
    whole = table_weights(job.model, table)
    each = job.training.storage_bytes + gradient * (1 + 1 / table.gtp)
    ends = np.minimum(1, ranks.embedding + ranks.head)
    return np.asarray(total + ends * ((table.gtp > 1) * whole * each))


def _shapes(model: ModelSpec) -> list[tuple[ModelSpec, Gathered]]:
    """Every shape once, with a kind of layer that has it."""
    found = {
        (one.inputs, one.outputs, one.by_rows, one.experts): (kind, one)
        for kind in model.kinds
        for one in gathered_weights(kind)
    }
    return list(found.values())

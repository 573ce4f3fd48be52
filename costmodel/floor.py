"""A coarse lower bound of the step time, before virtual stages and sharding are chosen."""

from __future__ import annotations

import numpy as np

from costmodel.blocks import blocks, distinct_keys
from costmodel.estimate import p2p_seconds, with_overhead
from costmodel.machine import Machine
from costmodel.rules import num_microbatches
from costmodel.runtimes.base import RuntimeTraits
from costmodel.spec.job import Job
from costmodel.table import FloatColumn, LayoutTable


def floor_seconds(
    job: Job, machine: Machine, traits: RuntimeTraits, table: LayoutTable
) -> FloatColumn:
    """Seconds no choice of vpp, schedule, ZeRO stage, recomputation or offload can beat.

    A step takes as long as its slowest rank, hence at least the mean over ranks of

        m (F + B) + the way to the rank,

    and the way to rank r sends r messages and crosses r stages, of which only the first may be
    empty, in both directions.
    Source: derived; property-tested against `estimate.price`.
    """
    keys, key = distinct_keys(table)
    kinds = blocks(job, machine, traits, keys)
    model = job.model
    dense = kinds.dense.forward.total + kinds.dense.backward.total
    moe = kinds.moe.forward.total + kinds.moe.backward.total
    total = model.num_dense_layers * dense + model.num_moe_layers * moe
    for count, end in (
        (1, kinds.embedding),
        (1, kinds.head),
        (model.num_nextn_predict_layers, kinds.mtp),
    ):
        total = total + count * (end.forward.total + end.backward.total)
    layer = np.minimum(dense, moe) if model.num_dense_layers and model.moe else moe
    hops = (table.pp - 1) / 2
    crossed = hops * np.maximum(0, table.pp - 2) / table.pp
    way = crossed * layer[key] + hops * 2 * p2p_seconds(job, machine, traits, table)
    pipeline = num_microbatches(job, table) * total[key] / table.pp + way
    return with_overhead(machine, pipeline)

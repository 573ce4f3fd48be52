"""How much of the traffic of weights and gradients runs beside passes of its rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.blocks.candidates import Candidates
from trainplan.costmodel.layouts import BoolColumn, FloatColumn
from trainplan.costmodel.memory.states import shard_ranks, sums_whole


@dataclass(frozen=True, slots=True)
class Overlap:
    """What traffic of a rank can hide behind, for each row."""

    least: FloatColumn
    """Exposed in any case, of each second of traffic; above 1 where others wait in turn."""
    window: FloatColumn
    """Passes of one micro batch through the rank that the rest runs beside."""

    def exposed(self, traffic: FloatColumn, compute: FloatColumn) -> FloatColumn:
        """Seconds by which traffic outlasts passes of `compute` seconds a micro batch.

        Source: traffic of T seconds runs beside `window` passes of C seconds and outlasts them by T
        - window C, but never by less than the part `least` T that nothing runs beside.
        """
        return np.maximum(self.least * traffic, traffic - self.window * compute)


def reduction_overlap(candidates: Candidates) -> Overlap:
    """What the reduction of gradients hides behind.

    In buckets behind the last backward pass. Virtual stages that reduce whole: the gradients of one
    go when the last backward pass of its last micro batch has ended, and the next stage of the rank
    ends `pp` passes later, so 1 / vpp of the traffic has nothing left to hide behind.

    FSDP that sums whole gradients under a pipeline reduces those of a stage when its last backward
    pass has ended, one unit after the other, and the stream of the passes waits for each.
    Source: `first_bucket`, `overlap_window`, `Sharding.whole_stages`; PyTorch v2.6.0
    `distributed/pipelining/stage.py`, run_post_backward (later an op of the schedule,
    REDUCE_GRAD), and `fsdp/_fully_shard/_fsdp_param_group.py`, post_backward.
    """
    traits, table = candidates.traits, candidates.table
    overlapped = traits.sharding.overlaps_gradients & ~sums_whole(traits, table, shard_ranks(table))
    return _overlap(candidates, np.asarray(overlapped))


def gather_overlap(candidates: Candidates) -> Overlap:
    """What the gather of updated weights hides behind.

    In buckets behind the first forward pass. Virtual stages that gather whole: the first one's
    weights are there before anything runs, those of each further one are due `pp` passes later.
    Without virtual stages all ranks of a pipeline but the first start theirs when their first micro
    batch has come, and gather before they pass it on: it waits for pp - 1 gathers in turn.
    Source: `first_bucket`, `overlap_window`, `Sharding.whole_stages`,
    `Sharding.gathers_apart`.
    """
    traits, table = candidates.traits, candidates.table
    pipelined = (table.pp > 1) & (table.vpp == 1) & traits.sharding.whole_stages
    overlapped = np.full(len(table), traits.sharding.overlaps_parameters) & ~(
        pipelined & traits.sharding.gathers_apart
    )
    usual = _overlap(candidates, overlapped)
    waits = overlapped & pipelined
    return Overlap(
        least=np.where(waits, table.pp - 1.0, usual.least),
        window=np.where(waits, 0.0, usual.window),
    )


def _overlap(candidates: Candidates, overlapped: BoolColumn) -> Overlap:
    """Of traffic in buckets or by virtual stages, where it is hidden at all.

    Source: as `reduction_overlap`; stages one by one, T traffic and C seconds of a pass: T / vpp is
    left if each goes in the pp C / vpp between two, else all but (vpp - 1) pp C / vpp of T.
    """
    table = candidates.table
    constants, whole = (
        candidates.machine.constants,
        (table.vpp > 1) & candidates.traits.sharding.whole_stages,
    )
    least = np.where(whole, 1 / table.vpp, constants.first_bucket)
    window = np.where(whole, table.pp * (1 - 1 / table.vpp), constants.overlap_window)
    return Overlap(np.where(overlapped, least, 1.0), np.where(overlapped, window, 0.0))

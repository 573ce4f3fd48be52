"""Exchanges of experts and compute on lanes that each run one operation after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn


@dataclass(frozen=True, slots=True)
class Computed:
    """Seconds of compute between two exchanges on the other lane, in the order it runs."""

    behind: FloatColumn
    """What the second exchange sends is its result."""
    weights: FloatColumn
    """Weight gradients that no exchange waits for."""
    ahead: FloatColumn
    """Needs what the first exchange brings."""


def exposed_seconds(exchange: FloatColumn, compute: FloatColumn, contention: float) -> FloatColumn:
    """Seconds that an exchange adds to compute which starts with it on the other lane.

    Source: `exposed_of_pair` of one exchange.
    """
    return np.maximum(contention * exchange, exchange - compute)


def exposed_of_pair(
    first: FloatColumn, second: FloatColumn, computed: Computed, contention: FloatColumn | float
) -> FloatColumn:
    """Seconds that two exchanges add to compute of two micro batches until they meet again.

    Wire: `first`, `second`. Compute: behind, weights, ahead. `second` waits for `behind`, `ahead`
    for `first`; both lanes start together and the next half waits for both. While the wire is busy
    compute runs at 1 - `contention` of its speed.
    Source: derived, the longest of the paths through both lanes; Megatron-LM @d98e8a64
    `models/common/model_chunk_schedule_plan.py`, TransformerLayerSchedulePlan.run, in whose order
    a layer's two micro batches meet twice: before the dispatch of one, where the experts run
    backward and then forward, and before its combine, where the mixers do.
    """
    compute = computed.behind + computed.weights + computed.ahead
    waits = first + np.maximum(second, computed.ahead + contention * second) - compute
    sends = contention * first + second - (computed.weights + computed.ahead)
    return np.maximum(np.maximum(contention * (first + second), waits), sends)


def chunked_seconds(chunks: int, stages: Sequence[tuple[str, FloatColumn]]) -> FloatColumn:
    """Seconds of chunks that each pass through the same stages, on lanes.

    A stage is its lane and the seconds of one chunk. A lane takes all chunks through one of its
    stages before any through the next.
    Source: derived; Hwang et al., Tutel, arXiv:2206.03382, section 3.3, and microsoft/tutel
    `impls/overlap.py`, a2a_ffn_overlap_forward, which sends all chunks before any comes back; with
    one wire and one GPU no order of the lanes is faster.
    """
    ends = [np.zeros(())] * chunks
    free: dict[str, FloatColumn] = {}
    for lane, seconds in stages:
        for number in range(chunks):
            start = np.maximum(ends[number], free.get(lane, np.zeros(())))
            ends[number] = free[lane] = start + seconds
    return ends[-1]


def share_alone(pp: IntColumn, vpp: IntColumn, microbatches: IntColumn) -> FloatColumn:
    """Share of a rank's passes that no opposite pass overlaps.

    The first micro batch runs forward through all stages before any backward pass does, and the
    last one back when no forward pass is left: as long as pp stages of the
    M + (pp - 1) / vpp that a step takes.
    Source: derived; Megatron-LM @d98e8a64 `pipeline_parallel/combined_1f1b.py`, phases 0 and 4, and
    `schedules.py`, get_pp_rank_microbatches, with one warm-up pass more.
    """
    rounds = np.maximum(1, microbatches) + (pp - 1) / vpp
    return np.asarray(np.minimum(1.0, pp / rounds))

"""Copies of weights and gradients into the buffers of collectives and out of them.

They run on the stream of the passes, at the bandwidth of memory, so they are time of the step
whatever overlaps the traffic; copies of shards before a gather do on a stream of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.kernels import streaming_bytes_per_second


@dataclass(frozen=True, slots=True)
class Copies:
    """Seconds for each parameter of a whole copy."""

    gather: FloatColumn
    reduce: FloatColumn

    def take(self, rows: IntColumn) -> Copies:
        """The rows picked by an index."""
        return Copies(self.gather[rows], self.reduce[rows])

    def where(self, made: BoolColumn) -> Copies:
        """None in the other rows."""
        return Copies(made * self.gather, made * self.reduce)


def copies_of(
    candidates: Candidates, gathered: FloatColumn, shards: FloatColumn, ranks: FloatColumn
) -> Copies:
    """Around both collectives of FSDP2, whose units are no flat buffers.

    Weights are gathered from `gathered` ranks, gradients scattered over `shards`, and `ranks` sum
    one gradient.

    A shard is read and written into its place of the gathered buffer, all of that read and written
    into the weights. Gradients are read and written one behind the other in fp32; what is left on
    the rank is divided by `ranks`. A rank that shares its states with none copies them once more.
    Source: PyTorch v2.13.0 `distributed/fsdp/_fully_shard/_fsdp_collectives.py`,
    all_gather_copy_in, foreach_all_gather_copy_out, foreach_reduce (before the stream of the
    reduction is entered; gloo has no mean, so sums are divided).
    """
    traits, machine, alone = candidates.traits, candidates.machine, shards == 1
    waits = traits.sharding.waits
    if not waits and not traits.shards_with_fsdp2:
        return Copies(np.zeros_like(shards), np.zeros_like(shards))
    gather = np.where(gathered == 1, 0.0, 2 * machine.storage_bytes * (1 + waits / gathered))
    copied = machine.storage_bytes + BYTES_FP32 + 2 * BYTES_FP32 * alone
    divided = waits * 2 * BYTES_FP32 / shards * (ranks > 1)
    speed = streaming_bytes_per_second(machine)
    return Copies(gather / speed, (copied + divided) / speed)

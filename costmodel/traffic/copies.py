"""Copies of weights and gradients into the buffers of collectives and out of them.

On a GPU they run on the streams of the traffic, at the bandwidth of its memory. Where nothing runs
beside the traffic (`Sharding.waits`), they are time of the step.
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


def copies_of(candidates: Candidates, shards: FloatColumn, ranks: FloatColumn) -> Copies:
    """Around both collectives of FSDP2; none where those are beside streams.

    `shards` ranks share a copy of the states, and `ranks` sum one gradient.

    A shard is read and written into its place of the gathered buffer, all of that read and written
    into the weights. Gradients are read and written one behind the other in fp32; what is left on
    the rank is divided by `ranks`. A rank that shares its states with none copies them once more.
    Source: PyTorch v2.13.0 `distributed/fsdp/_fully_shard/_fsdp_collectives.py`,
    all_gather_copy_in, foreach_all_gather_copy_out, foreach_reduce (gloo has no mean, so sums are
    divided).
    """
    if not candidates.traits.sharding.waits:
        return Copies(np.zeros_like(shards), np.zeros_like(shards))
    machine, alone = candidates.machine, shards == 1
    gather = np.where(alone, 0.0, 2 * machine.storage_bytes * (1 + 1 / shards))
    copied = machine.storage_bytes + BYTES_FP32 + 2 * BYTES_FP32 * alone
    divided = 2 * BYTES_FP32 / shards * (ranks > 1)
    speed = streaming_bytes_per_second(machine)
    return Copies(gather / speed, (copied + divided) / speed)

"""Which nodes the ranks of a layout talk to, by place in the order of the nodes.

Ranks are numbered as in `costmodel.comm.topology`; place `p` holds the ranks of one node. A ring
links neighbours in rank order and closes. Source: Megatron-LM `parallel_state.py`, order
"tp-cp-ep-dp-pp"; NCCL builds rings over nodes in the order of their ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.columns import IntColumn
from trainplan.costmodel.layout import Layout

Pairs = NDArray[np.int64]
"""Shape (pair, 2): places whose nodes exchange messages, the smaller first."""
Paths = NDArray[np.int64]
"""Shape (path, hop, 2): places a pipeline passes; both are equal where a hop stays in a node."""


@dataclass(frozen=True, slots=True)
class Places:
    """How ranks lie on nodes."""

    layout: Layout
    gpus_per_node: int

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline rank."""
        return self.layout.tp * self.layout.cp * self.layout.dp

    @property
    def count(self) -> int:
        """Places, one for each node."""
        return -(-self.layout.world_size // self.gpus_per_node)

    def ring(self, pipeline_rank: int, size: int, stride: int) -> Pairs:
        """Neighbours on the rings of all groups of `size` ranks at distance `stride`."""
        members = self._members(pipeline_rank, size, stride)
        return _crossing(members, np.roll(members, -1, axis=1))

    def everyone(self, pipeline_rank: int, size: int, stride: int) -> Pairs:
        """All pairs inside all groups of `size` ranks at distance `stride`."""
        members = self._members(pipeline_rank, size, stride)
        shifts = [np.roll(members, -shift, axis=1) for shift in range(1, size // 2 + 1)]
        return joined([_crossing(members, other) for other in shifts])

    def inside(self, pipeline_rank: int) -> Pairs:
        """The places of a pipeline rank, each paired with itself."""
        places = np.unique(self._ranks(pipeline_rank) // self.gpus_per_node)
        return np.stack([places, places], axis=1)

    def paths(self, *, closed: bool) -> Paths:
        """The places every pipeline passes, each path once; `closed`: the last sends to the first.

        Ranks of one place in their stage form one pipeline.
        """
        layout = self.layout
        ranks = np.arange(layout.world_size).reshape(layout.pp, self.stage_ranks)
        places = ranks.T // self.gpus_per_node
        nexts = np.roll(places, -1, axis=1)
        hops = np.stack([np.minimum(places, nexts), np.maximum(places, nexts)], axis=2)
        return np.unique(hops if closed else hops[:, :-1], axis=0)

    def _ranks(self, pipeline_rank: int) -> IntColumn:
        return np.arange(self.stage_ranks) + pipeline_rank * self.stage_ranks

    def _members(self, pipeline_rank: int, size: int, stride: int) -> Pairs:
        """Places of the members of every group; shape (group, member)."""
        places = self._ranks(pipeline_rank) // self.gpus_per_node
        groups = places.reshape(-1, size, stride).transpose(0, 2, 1).reshape(-1, size)
        return np.unique(groups, axis=0)


def joined(parts: list[Pairs]) -> Pairs:
    """Every pair of all parts once."""
    return np.unique(np.concatenate([np.zeros((0, 2), dtype=np.int64), *parts]), axis=0)


def _crossing(one: Pairs, other: Pairs) -> Pairs:
    """Pairs of unlike places, each once."""
    pairs = np.stack([np.minimum(one, other).ravel(), np.maximum(one, other).ravel()], axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)

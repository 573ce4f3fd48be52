"""Ranks that share one copy of weights, of gradients and of optimizer states.

ZeRO stages, groups of replicas, and copies that share out an optimizer are points of three numbers,
each a multiple of the one before; what is sharded over fewer ranks than have it is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.layouts import LayoutTable


@dataclass(frozen=True, slots=True)
class ShardGroups:
    """Ranks that share one copy of each state, of one sort of parameters; 1: every rank has it.

    Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5 (optimizer, gradients, weights);
    Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 3.2.2 (groups of replicas).
    """

    weights: FloatColumn
    gradients: FloatColumn
    """A multiple of those of weights."""
    optimizer: FloatColumn
    """A multiple of those of gradients."""
    ranks: FloatColumn
    """All that have the same parameters."""


def groups_of(table: LayoutTable) -> tuple[ShardGroups, ShardGroups]:
    """Of dense parameters and of routed experts.

    Those that `gtp` cuts have each a part, which the others share.
    Source: arXiv:2504.14960, section 3: expert data parallelism is tp cp dp / (etp ep).
    """
    copies = table.dp_replicate
    dense = table.dp / copies * table.cp / table.gtp
    routed = table.tp * table.cp * table.dp / (table.etp * table.ep)
    expert = np.maximum(1.0, routed / copies / table.egtp)
    every = np.maximum(1.0, routed / table.egtp)
    return _groups(table, dense, table.dp * table.cp / table.gtp), _groups(table, expert, every)


def _groups(table: LayoutTable, shards: FloatColumn, ranks: FloatColumn) -> ShardGroups:
    """Of states that `shards` ranks share under the ZeRO stage of each row.

    Source: as `ShardGroups`; Megatron-LM @d98e8a64, guide of Megatron-FSDP, memory profile of
    Hybrid-FSDP, for copies that share the optimizer.
    """
    stage = table.zero_stage
    updated = shards * np.where(table.replicas_share_optimizer == 1, table.dp_replicate, 1)
    return ShardGroups(
        weights=np.where(stage == 3, shards, 1.0),
        gradients=np.where(stage >= 2, shards, 1.0),
        optimizer=np.where(stage >= 1, updated, 1.0),
        ranks=ranks,
    )


@remembered
def shard_groups(candidates: Candidates) -> tuple[ShardGroups, ShardGroups]:
    """`groups_of`, of which answers are kept."""
    return groups_of(candidates.table)

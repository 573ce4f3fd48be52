"""Ranks that share one copy of weights, of gradients and of optimizer states.

ZeRO stages, groups of replicas, and copies that share out an optimizer are points of three numbers,
each a multiple of the one before; what is sharded over fewer ranks than have it is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.layout import SHARD_BITS
from trainplan.costmodel.layouts import LayoutTable

STATES = 3
"""Weights, gradients, optimizer."""


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
    found = _groups(table, dense, table.dp * table.cp / table.gtp), _groups(table, expert, every)
    return (_by_state(table, found[0]), _by_state(table, found[1])) if table.shard.any() else found


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


def _by_state(table: LayoutTable, groups: ShardGroups) -> ShardGroups:
    """Of rows that say `shard`: as many copies of each state as of dense ones.

    Source: derived; a rank of `dp * cp` has a copy of everything in as many ranks as share one.
    """
    usual = np.stack([groups.weights, groups.gradients, groups.optimizer])
    sizes = np.maximum(1.0, groups.ranks * stated_sizes(table) / (table.dp * table.cp))
    weights, gradients, optimizer = np.where(table.shard > 0, sizes, usual)
    return ShardGroups(weights, gradients, optimizer, groups.ranks)


def stated_sizes(table: LayoutTable) -> IntColumn:
    """Ranks that share weights, gradients and optimizer by `shard`; shape (state, row)."""
    places = SHARD_BITS * np.arange(STATES)[:, None]
    return np.asarray(np.maximum(1, table.shard >> places & ((1 << SHARD_BITS) - 1)))


def shard_codes(table: LayoutTable) -> IntColumn:
    """Ranks that share each dense state, coded as `shard`, of all rows. Source: `Shards.code`."""
    dense, _ = groups_of(table)
    sizes = enumerate((dense.weights, dense.gradients, dense.optimizer))
    codes = [size.astype(np.int64) << SHARD_BITS * place for place, size in sizes]
    return np.asarray(np.sum(codes, axis=0))


def shard_columns(table: LayoutTable) -> tuple[IntColumn, ...]:
    """Columns that decide about groups, beside the degrees; those that no row sets left out."""
    rare = (table.replicas_share_optimizer, table.shard)
    said = (column for column in rare if column.any())
    return (table.dp_replicate, table.zero_stage, table.hpz, *said)


@remembered
def shard_groups(candidates: Candidates) -> tuple[ShardGroups, ShardGroups]:
    """`groups_of`, of which answers are kept."""
    return groups_of(candidates.table)

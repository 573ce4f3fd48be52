"""Seconds of the pipelined part of a step: a proven lower bound for every row, in closed form.

Every rank of a class waits for its first micro batch, runs all its work, and its last backward
pass still has to travel home:

    T >= before_F + m (F + B) + before_B                                               (1)

with `before` the ranks (and messages) ahead of it. Under 1F1B, rank r holds at most p - r micro
batches, so from a backward pass on rank r the path up to rank 0 and down again with the micro
batch p later replaces r of rank r's own pairs; every such detour that is longer than the pairs it
replaces adds to (1). Both are lengths of paths in the graph the simulator runs, so neither can
exceed its makespan (tests/properties/test_bounds.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.blocks import Block
from costmodel.ranks import Ranks
from costmodel.table import FloatColumn, IntColumn, LayoutTable


@dataclass(frozen=True, slots=True)
class LayerSeconds:
    """Seconds of one layer of a kind for each row, with all that depends on the whole row."""

    forward: FloatColumn
    backward: FloatColumn
    """With the work selective recomputation repeats."""
    again: FloatColumn
    """Forward work that full recomputation repeats in the backward pass; sharded weights are
    gathered once for both."""
    recompute: FloatColumn
    """Part of `backward`: what selective recomputation repeats."""
    traffic: FloatColumn
    """Part of both passes: exposed gathers and reductions of sharded weights and gradients."""


@dataclass(frozen=True, slots=True)
class RowSeconds:
    """Seconds of every kind of block for each row."""

    dense: LayerSeconds
    moe: LayerSeconds
    embedding: LayerSeconds
    head: LayerSeconds
    mtp: LayerSeconds
    p2p: FloatColumn

    @property
    def by_kind(self) -> tuple[LayerSeconds, ...]:
        """Dense, MoE, embedding, head, MTP."""
        return self.dense, self.moe, self.embedding, self.head, self.mtp


@dataclass(frozen=True, slots=True)
class RankSeconds:
    """Seconds of each rank class; matrices have shape (class, row)."""

    forward: FloatColumn
    """Forward passes of one micro batch through the rank."""
    backward: FloatColumn
    reach: FloatColumn
    """One micro batch's way to the rank, messages included."""
    home: FloatColumn
    """Its way back from the rank."""

    @property
    def pair(self) -> FloatColumn:
        """Forward and backward of one micro batch. Source: derived."""
        return self.forward + self.backward


def layer_seconds(block: Block, key: IntColumn, recompute: FloatColumn) -> LayerSeconds:
    """Gather one kind of block for each row; no weight is sharded yet.

    Source: derived.
    """
    forward, backward = block.forward.total[key], block.backward.total[key] + recompute
    return LayerSeconds(forward, backward, forward, recompute, traffic=np.zeros(len(key)))


def rank_seconds(seconds: RowSeconds, ranks: Ranks) -> RankSeconds:
    """Work of each rank class and the way to it.

    Source: derived; sums of blocks over the rank's virtual stages.
    """
    dense, moe, embedding = seconds.dense, seconds.moe, seconds.embedding
    forward = ranks.dense * dense.forward
    backward = ranks.dense * dense.backward
    behind, messages = ranks.rank > 0, ranks.rank * seconds.p2p
    reach = ranks.dense_before * dense.forward + messages + behind * embedding.forward
    home = ranks.dense_before * dense.backward + messages + behind * embedding.backward
    if ranks.dense_again.any():
        backward += ranks.dense_again * dense.again
        home += ranks.dense_again_before * dense.again
    if ranks.moe.any():
        forward += ranks.moe * moe.forward
        backward += ranks.moe * moe.backward
        reach += ranks.moe_before * moe.forward
        home += ranks.moe_before * moe.backward
    if ranks.moe_again.any():
        backward += ranks.moe_again * moe.again
        home += ranks.moe_again_before * moe.again
    for count, block in zip(ranks.by_kind[2:], seconds.by_kind[2:], strict=True):
        if count.any():
            forward += count * block.forward
            backward += count * block.backward
    return RankSeconds(forward, backward, reach, home)


def earliest_ends(work: RankSeconds, microbatches: IntColumn) -> FloatColumn:
    """Seconds before which no rank class can have finished its passes.

    Source: derived; its first micro batch has to reach it, then it runs all its work.
    """
    return work.reach + microbatches * work.pair


def pipeline_lower_bound(
    work: RankSeconds, ranks: Ranks, table: LayoutTable, microbatches: IntColumn
) -> FloatColumn:
    """Seconds no order of the schedule's passes can beat.

    Source: derived; equations and proof in the module's docstring.
    """
    pair, way = work.pair, work.reach + work.home
    bound = earliest_ends(work, microbatches) + work.home
    beyond = (microbatches - 1 - table.pp).astype(np.float64)
    single = (table.schedule == 0) & (beyond >= 0)
    if single.any():
        detours = single * (np.floor(beyond / (ranks.rank + 1)) + 1)
        bound += detours * np.maximum(0.0, way - ranks.rank * pair)
    return np.asarray(bound.max(axis=0))

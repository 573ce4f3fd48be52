"""Blocks gathered for every layout, with what each layout recomputes selectively."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.blocks import Block, Blocks, blocks, distinct_keys
from trainplan.costmodel.blocks.candidates import Candidates
from trainplan.costmodel.blocks.offload import Copies, layer_copies
from trainplan.costmodel.layouts import FloatColumn, IntColumn, LayoutTable
from trainplan.costmodel.layouts.table import FULL, UNIFORM, recomputes


@dataclass(frozen=True, slots=True)
class Selective:
    """One kind of layer under the selective recomputation and the offload of each row."""

    seconds: FloatColumn
    """Forward work repeated in the backward pass."""
    saved_bytes: FloatColumn
    """Activations kept from forward to backward."""
    dropped_bytes: FloatColumn
    """Not kept, but present again while one layer runs backward."""
    copies: Copies
    """What waits on the host; not in `saved_bytes`."""


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """Blocks of distinct keys, and what each row makes of them."""

    kinds: Blocks
    key: IntColumn
    """Row of `kinds` that belongs to each layout."""
    dense: Selective
    moe: Selective
    """As `dense` in a model without mixture of experts."""
    mtp: Selective


def row_blocks(candidates: Candidates) -> RowBlocks:
    """Price every distinct block once and gather it by row."""
    job, table = candidates.job, candidates.table
    keys, key = distinct_keys(candidates)
    kinds = blocks(keys)
    copies = layer_copies(keys, key=key, table=table)
    dense = moe = _selective(kinds.dense, key, table, copies[0])
    if job.model.moe:
        moe = _selective(kinds.moe, key, table, copies[1])
    return RowBlocks(kinds, key, dense, moe, _prediction(kinds, key, moe, table))


def _prediction(kinds: Blocks, key: IntColumn, layer: Selective, table: LayoutTable) -> Selective:
    """The layer inside a multi-token-prediction module: uniform recomputation repeats it too.

    Source: Megatron Core multi_token_prediction.py:1621 (the block method leaves it whole).
    """
    again = (table.recompute == FULL) & (table.recompute_method == UNIFORM)
    whole = kinds.moe.saved_bytes[key]
    dropped = np.where(again, whole - kinds.layer_input_bytes[key], layer.dropped_bytes)
    return Selective(
        seconds=np.where(again, kinds.moe.forward.total[key], layer.seconds),
        saved_bytes=kinds.mtp.saved_bytes[key] - dropped - layer.copies.freed_bytes,
        dropped_bytes=dropped,
        copies=layer.copies,
    )


def _selective(block: Block, key: IntColumn, table: LayoutTable, copies: Copies) -> Selective:
    seconds, dropped = np.zeros((2, len(table)))
    for module in block.modules:
        chosen = recomputes(table, module.name)
        if module.inside:
            chosen &= ~recomputes(table, module.inside)
        if chosen.any():
            seconds += chosen * module.seconds[key]
            dropped += chosen * module.dropped_bytes[key]
    kept = np.maximum(0.0, block.saved_bytes[key] - dropped - copies.freed_bytes)
    return Selective(seconds, kept, dropped, copies)

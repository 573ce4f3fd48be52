"""Batches of layouts on their way through the search of unlike node groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import numpy as np

from costmodel.table import FloatColumn, IntColumn, LayoutTable
from planner.pool import Pool

CHUNK_ROWS = 8_192
"""Rows priced at once."""
LARGEST = 4
"""Groups whose orders are all tried; of more only the order of the file and its reverse."""


def orders_of(groups: int) -> tuple[tuple[int, ...], ...]:
    """The orders in which node groups may follow one another in a pipeline."""
    given = tuple(range(groups))
    return tuple(permutations(given)) if groups <= LARGEST else (given, given[::-1])


def parts_of(table: LayoutTable) -> list[LayoutTable]:
    """The table in pieces whose columns stay in the processor's cache."""
    starts = range(0, len(table), CHUNK_ROWS)
    return [table.take(np.arange(s, min(s + CHUNK_ROWS, len(table)))) for s in starts]


def first_of_each(table: LayoutTable, value: FloatColumn, most: int) -> IntColumn:
    """Rows with the smallest values, so many of each tp, cp, pp and vpp."""
    order = np.argsort(value, kind="stable")
    seen: Counter[tuple[int, ...]] = Counter()
    chosen = []
    for row in order.tolist():
        key = tuple(int(getattr(table, name)[row]) for name in ("tp", "cp", "pp", "vpp"))
        seen[key] += 1
        if seen[key] <= most:
            chosen.append(row)
    return np.array(chosen, dtype=np.int64)


def joined(pools: Sequence[Pool]) -> Pool:
    """All of them together."""
    return Pool(
        LayoutTable.concat([pool.table for pool in pools]),
        np.concatenate([pool.bound for pool in pools]),
        np.concatenate([pool.family for pool in pools]),
    )


def uneven(layers: tuple[int, ...]) -> tuple[int, ...]:
    """A split like the even one, but for one layer."""
    longest = int(np.argmax(layers))
    other = (longest + 1) % len(layers)
    step = np.zeros(len(layers), dtype=np.int64)
    step[longest], step[other] = -1, 1
    return tuple((np.array(layers) + step).tolist())

"""What is true of a rank however its layers are spread over its virtual stages, its chunks.

Every chunk but the first and the last stage of the pipeline holds a layer at least; the other
layers of the rank may lie on any of its chunks. Where chunks are `alike` they differ by one layer
at most, and the longer ones are the first or the last ones, on all ranks the same.
`Windows` are the fewest and most layers of every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Generic, TypeVar

import numpy as np

from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    FloatMatrix,
    IntColumn,
    IntMatrix,
    IntRankChunks,
    RankRows,
)
from trainplan.planner.solvers import Matrix


def inner_chunks(stage_of: IntRankChunks) -> IntRankChunks:
    """1 for each chunk of a rank that is between the ends of the pipeline: it is never empty."""
    ends = (stage_of == 0) | (stage_of == stage_of.size - 1)
    return np.where(ends, 0, 1)


def held_on_others(stage_of: IntRankChunks) -> IntColumn:
    """Layers at least on the other chunks of the rank of each virtual stage; (stage,)."""
    inner, others = inner_chunks(stage_of), np.empty(stage_of.size, dtype=np.int64)
    others[stage_of] = inner.sum(axis=1, keepdims=True) - inner
    return others


def stage_ends(
    stage_of: IntRankChunks, least: IntColumn, most: IntColumn, *, alike: bool
) -> tuple[IntColumn, IntColumn]:
    """Fewest and most layers of each virtual stage, by those of each rank; two of (stage,)."""
    low, high = np.empty((2, stage_of.size), dtype=np.int64)
    if alike or stage_of.shape[1] == 1:
        low[stage_of] = (least // stage_of.shape[1])[:, None]
        high[stage_of] = -(-most // stage_of.shape[1])[:, None]
        return low, high
    low[stage_of], high[stage_of] = inner_chunks(stage_of), most[:, None]
    return low, np.maximum(high - held_on_others(stage_of), low)


def longest_chunks(stage_of: IntRankChunks, most: FloatMatrix, *, alike: bool) -> FloatMatrix:
    """Most layers of each virtual stage, one at least, by those of its rank; (stage, row) both."""
    chunks = (
        np.ceil(most / stage_of.shape[1]) if alike else most - held_on_others(stage_of)[:, None]
    )
    return np.asarray(np.maximum(1.0, chunks))


def spread_least(
    costs: FloatMatrix, stage_of: IntRankChunks, *, alike: bool
) -> tuple[FloatMatrix, FloatMatrix]:
    """What a rank's layers take at least if one costs so much on its stages; (row, stage).

    Slope and start of a line in the layers of a rank, (row, rank). Source: one layer lies on every
    chunk that is never empty, all others where one costs least; of chunks that are alike the
    shorter ones may be the dearer ones.
    """
    chunks, inner = costs[:, stage_of], inner_chunks(stage_of)
    cheapest = chunks.min(axis=2)
    if alike:
        mean = chunks.mean(axis=2)
        return mean, -(stage_of.shape[1] - 1) * (mean - cheapest)
    return cheapest, (chunks * inner).sum(axis=2) - inner.sum(axis=1) * cheapest


def spread_sum(
    each: FloatMatrix, stage_of: IntRankChunks, layers: int, *, alike: bool
) -> FloatColumn:
    """Seconds at least of all layers if one takes so much on each stage; `each` is (stage, row).

    Source: one layer lies on every inner stage, and all others where one takes least. Where chunks
    are alike, the longer ones of a rank are its first or its last k: k chunks of the mean less
    those k is what they save.
    """
    if not alike:
        inner = each[1:-1]
        return np.asarray(inner.sum(axis=0) + (layers - len(inner)) * each.min(axis=0))
    chunks = each[stage_of]
    mean, size = chunks.mean(axis=1), np.arange(1, chunks.shape[1] + 1)[None, :, None]
    ways = (np.cumsum(chunks, axis=1), np.cumsum(chunks[:, ::-1], axis=1))
    saved = np.maximum(*((size * mean[:, None] - way).max(axis=1) for way in ways)).clip(0.0)
    return np.asarray(layers * mean.min(axis=0) - saved.sum(axis=0))


def in_flight_least(
    passes: FloatMatrix, stage_of: IntRankChunks, layers: IntMatrix, *, alike: bool
) -> FloatMatrix:
    """Layers in flight at least on ranks with so many; (rank, number).

    Source: the layers that are free to lie on any chunk lie where fewest `passes` are in flight.
    """
    if alike:
        base, more = np.divmod(layers, stage_of.shape[1])
        sums = np.cumsum(np.sort(passes, axis=1), axis=1)
        sums = np.concatenate([np.zeros((len(sums), 1)), sums], axis=1)
        return np.asarray(base * sums[:, -1:] + np.take_along_axis(sums, more, axis=1))
    inner = inner_chunks(stage_of)
    free = layers - inner.sum(axis=1, keepdims=True)
    held = np.where(free >= 0, (passes * inner).sum(axis=1, keepdims=True), 0.0)
    return np.asarray(held + free.clip(0) * passes.min(axis=1, keepdims=True))


def recomputed_least(
    recomputed: IntColumn, stage_of: IntRankChunks, layers: IntMatrix, *, alike: bool
) -> FloatMatrix:
    """Layers recomputed at least on ranks with so many, if `recomputed` of each stage are.

    Source: of k layers on a chunk min(N, k) are recomputed, which is concave in k, so the sum over
    chunks is least where one holds all layers but one on each other that is never empty.
    """
    if alike:
        vpp = stage_of.shape[1]
        base, longer = np.divmod(layers, vpp)
        short, long = (np.minimum(recomputed, base + one) for one in (0, 1))
        return np.asarray((vpp - longer) * short + longer * long)
    alone = (inner_chunks(stage_of).sum(axis=1) - 1).clip(0)[:, None, None]
    longest = np.minimum(recomputed, (layers - alone).clip(0))
    return np.asarray(np.minimum(recomputed, 1) * alone + longest)


def fairest_weights(rows: FloatMatrix, inner: BoolColumn, others: float) -> FloatColumn:
    """Weights of rows that sum to one: their mean is most where layers lie at the least places.

    `rows` is (row, place). There is one layer on each `inner` place, and `others` where the mean
    is least. Columns of the program: what a layer takes there, the weights.
    Source: linear programming duality; the maximum of some sums is no less than any mean of
    them, so any weights that add up to one give a bound.
    """
    number, places = rows.shape
    if number == 1:
        return np.ones(1)
    matrix = np.concatenate([np.ones((places, 1)), -rows.T], axis=1)
    one = np.concatenate([np.zeros(1), np.ones(number)])[None, :]
    cost = np.concatenate([[-max(0.0, others)], -rows[:, inner].sum(axis=1)])
    found = Matrix(cost, matrix, np.zeros(places), one).solve()
    assert found is not None  # any weights are allowed
    weights = found[1:].clip(0.0)
    return np.asarray(weights / weights.sum())


def alike_weights(crossed: FloatMatrix, num_layers: int) -> FloatColumn:
    """As `fairest_weights` where chunks are alike; `crossed` is (path, rank, chunk).

    They make the layers on the rank where the mean path is shortest, less what uneven chunks save,
    longest. Columns of the program: what a layer takes there, what each rank saves, the weights.
    Source: as `spread_sum`.
    """
    paths, ranks, chunks = crossed.shape
    means, own = crossed.mean(axis=2).T, np.eye(ranks)
    rows = [np.concatenate([np.ones((ranks, 1)), 0 * own, -means], axis=1)]
    for ordered in (crossed, crossed[:, :, ::-1]):
        for size in range(1, chunks):
            more = size * means - ordered[:, :, :size].sum(axis=2).T
            rows.append(np.concatenate([np.zeros((ranks, 1)), -own, more], axis=1))
    matrix = np.concatenate(rows)
    one = np.concatenate([np.zeros(1 + ranks), np.ones(paths)])[None, :]
    cost = np.concatenate([[-float(num_layers)], np.ones(ranks), np.zeros(paths)])
    found = Matrix(cost, matrix, np.zeros(len(matrix)), one).solve()
    assert found is not None  # any weights are allowed
    weights = found[1 + ranks :].clip(0.0)
    return np.asarray(weights / weights.sum())


def num_chunk_ways(inner: tuple[int, ...], least: int, most: int) -> int:
    """How many `chunk_ways` there are: n layers on k places in (n + k - 1) over (k - 1) ways."""
    others, places = range(max(0, least - sum(inner)), most - sum(inner) + 1), len(inner)
    return sum(comb(other + places - 1, places - 1) for other in others)


@lru_cache(maxsize=4096)
def chunk_ways(inner: tuple[int, ...], least: int, most: int) -> IntMatrix:
    """Every way of `least` to `most` layers on the chunks of a rank; (way, chunk), fewest first."""
    bottom, places = sum(inner), len(inner)
    ways = []
    for others in range(max(0, least - bottom), most - bottom + 1):
        between = list(combinations(range(others + places - 1), places - 1))
        bars = np.array(between, dtype=np.int64).reshape(len(between), places - 1)
        size = len(bars)
        ends = np.concatenate([bars, np.full((size, 1), others + places - 1)], axis=1)
        begins = np.concatenate([np.full((size, 1), -1), bars], axis=1)
        ways.append(ends - begins - 1 + np.array(inner))
    return np.concatenate([*ways, np.zeros((0, places), dtype=np.int64)])


def chord_of_min(
    number: FloatColumn | IntColumn, least: FloatColumn | IntColumn, most: FloatColumn
) -> tuple[FloatColumn, FloatColumn]:
    """Slope and start of the line through min(N, n) at n = `least` and n = `most`.

    Between the two it lies below, because the function is concave.

    Source: min(N, n) is concave in n, so it lies above its chord between two points: slope (high -
    low) / (most - least), start low - slope least.
    """
    low, high = np.minimum(number, least), np.minimum(number, most)
    slope = np.where(most > least, (high - low) / np.maximum(1.0, most - least), 1.0 * (number > 0))
    return slope, np.asarray(low - slope * least)


def recomputed_line(recomputed: IntColumn, longest: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
    """Line below the layers that are recomputed on each stage: slope and start, (stage, row).

    Source: `chord_of_min`; only the first and the last stage may be empty.
    """
    least = np.ones((len(longest), 1))
    least[[0, -1]] = 0
    return chord_of_min(recomputed, least, longest)


Counts = TypeVar("Counts", IntColumn, RankRows)


@dataclass(frozen=True, slots=True)
class Windows(Generic[Counts]):
    """Fewest and most layers of every rank; shape (rank,), or (rank, row) of many layouts."""

    least: Counts
    most: Counts

    def equals(self, other: Windows[Counts]) -> bool:
        """Are they the same?"""
        return bool((self.least == other.least).all() and (self.most == other.most).all())

    def count(self, layers: int) -> int:
        """Ways to spread so many layers of one layout.

        Source: ranks take layers beyond their least one independently of another, so the ways of
        several ranks are the convolution of those of each.
        """
        ways = np.ones(1)
        for slack in (self.most - self.least).tolist():
            ways = np.convolve(ways, np.ones(slack + 1))
        left = layers - int(self.least.sum())
        return int(ways[left]) if 0 <= left < len(ways) else 0

    def hold(self, layers: int) -> BoolColumn:
        """Rows whose ranks can hold so many layers between them."""
        some = (self.most >= self.least).all(axis=0) & (self.least.sum(axis=0) <= layers)
        return np.asarray(some & (self.most.sum(axis=0) >= layers))

    def cheapest(self, cost: FloatColumn, layers: int) -> FloatColumn:
        """Least cost of so many layers, given what one costs on each rank; of each row.

        Source: the continuous knapsack, Dantzig, Operations Research 5, 1957.
        """
        order = np.argsort(cost, axis=0)
        spare = np.take_along_axis(self.most - self.least, order, axis=0)
        rest = layers - self.least.sum(axis=0)
        used = (rest - (np.cumsum(spare, axis=0) - spare)).clip(0.0, spare)
        more = (used * np.take_along_axis(cost, order, axis=0)).sum(axis=0)
        return np.asarray((cost * self.least).sum(axis=0) + more)

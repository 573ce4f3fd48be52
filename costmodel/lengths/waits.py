"""How long ranks and stages wait for the one whose rows have most attention work.

Rows are independent draws of one distribution. On a grid of works the mean of so many draws and the
largest of so many are exact: a convolution, and a power of the distribution function. A pipeline
has no such form: there it is the heaviest path through its order, on drawn micro batches.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainplan.costmodel.lengths.rows import SEED, Floats, Rows

CELLS = 1 << 13
"""Cells of the grid of works. Source: measured, twice as many change no factor by 0.1 %."""
HEADROOM = 1.125
"""Last cell over the heaviest row. Source: draws that all are the heaviest row spread by half a
cell each, which for up to 512 of them is less."""
LINES, MICROBATCHES = 64, 128
"""Pipelines that are drawn, and micro batches of each. Source: measured over 12 seeds, 0.8 % (2
stages) to 1.5 % (16) of standard deviation for rows whose works differ by as much as their mean."""


EQUAL = 1e-9
"""Works that differ by less are equal. Source: sums of whole tokens over their mean differ by
rounding alone, some 1e-16, or by a token of a row, more than this."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who runs side by side, in rows of micro batches."""

    replicas: int
    """Data-parallel ranks, which meet at the end of a step."""
    in_step: int
    """Of these, those that meet in every layer."""
    microbatches: int
    """Of one replica in a step."""
    rows: int
    """Of a micro batch."""
    pipeline: int
    """Stages that run at once."""


def waiting_factor(rows: Rows, case: Waiting, *, balanced: bool) -> float:
    """Attention seconds of the ranks that all wait for, over those of a mean row.

    Ranks that meet in every layer wait in each micro batch for the heaviest of theirs; such groups
    wait at the end of a step for the one with the heaviest sum; in a pipeline the micro batches in
    flight wait for one another. Where more ranks meet more often, none waits less.
    Source: derived; E[max] of sums over ranks is that of their order statistics.
    """
    if np.ptp(rows.work) < EQUAL:
        return 1.0
    steps = sorted({1, case.in_step})
    formula = _balanced if balanced else _independent
    return max(1.0, *(formula(rows, case, in_step) for in_step in steps))


def _independent(rows: Rows, case: Waiting, in_step: int) -> float:
    """Rows are dealt as they come.

    Source: M is the largest of `in_step` means of `rows` draws; a replica takes the mean of
    `microbatches` draws of M, all wait for the largest of them. What a pipeline adds to each micro
    batch it adds to those of a step, not to the p - 1 in which it fills and drains.
    """
    top = HEADROOM * float(rows.work[-1])
    micro = largest_of(mean_of(grid(rows.work, top), case.rows), in_step)
    groups = max(1, case.replicas // in_step)
    slowest = mean(largest_of(mean_of(micro, case.microbatches), groups), top)
    depth = min(case.pipeline, case.microbatches)
    if depth == 1:
        return slowest
    filled = case.microbatches / (case.microbatches + case.pipeline - 1)
    return slowest + filled * (heaviest_path(micro, top, depth) - mean(micro, top))


def _balanced(rows: Rows, case: Waiting, in_step: int) -> float:
    """Micro batches of like work run at the same time, and replicas get sums as like as they allow.

    Of N micro batches in falling order of work, each k that run at once take as long as their
    first; and no replica is done before the heaviest one is.
    Source: derived: the largest of N draws as `largest_of`, the r-th smallest near the quantile r /
    (N + 1) (David and Nagaraja, Order Statistics, 2003, section 4.5); max(mean, largest) bounds a
    schedule on equal machines from below, and Graham's rule is within a third of it.
    """
    top = HEADROOM * float(rows.work[-1])
    batch = case.replicas * case.microbatches
    at_once = in_step * min(case.pipeline, case.microbatches)
    first = batch - np.arange(0, batch, at_once)
    micro = mean_of(grid(rows.work, top), case.rows)
    works = quantiles(micro, top, first / (batch + 1))
    works[0] = mean(largest_of(micro, batch), top)
    filled = case.microbatches / (case.microbatches + case.pipeline - 1)
    pace = 1 + filled * (float(works.mean()) - 1)
    return max(pace, float(works[0]) / case.microbatches) if case.replicas > 1 else pace


def grid(work: Floats, top: float) -> Floats:
    """Probability of each cell, where every work is equally likely.

    Source: a value between two cells goes to both, so that the mean stays.
    """
    return _spread(work / top * (CELLS - 1), np.full(len(work), 1 / len(work)))


def _spread(place: Floats, share: Floats) -> Floats:
    """Shares at places between cells, each given to both. Source: as `grid`."""
    low = np.minimum(place.astype(np.int64), CELLS - 2)
    above = place - low
    cells = np.bincount(low, weights=share * (1 - above), minlength=CELLS)
    return np.asarray(cells + np.bincount(low + 1, weights=share * above, minlength=CELLS))


def mean_of(density: Floats, draws: int) -> Floats:
    """Density of the mean of so many independent draws.

    Source: the transform of a sum is the product of transforms; on cells `draws` times as wide the
    sum of them all fits the grid, but for what draws between two cells add, above `HEADROOM` none.
    """
    if draws == 1:
        return density
    some = np.flatnonzero(density)
    coarse = _spread(some / draws, density[some])
    density = np.fft.irfft(np.fft.rfft(coarse, 2 * CELLS) ** draws, 2 * CELLS)[:CELLS]
    return np.asarray(np.maximum(density, 0.0) / np.maximum(density, 0.0).sum())


def largest_of(density: Floats, ranks: int) -> Floats:
    """Density of the largest of so many independent draws.

    Source: independent draws are all at most x with probability F(x)^ranks, where F is that of one
    (David and Nagaraja, Order Statistics, 2003, section 2.1).
    """
    if ranks == 1:
        return density
    below = np.minimum(np.cumsum(density), 1.0) ** ranks
    return np.diff(below, prepend=0.0)


def mean(density: Floats, top: float) -> float:
    """Mean work. Source: cells as `grid` places them, each by its probability."""
    return float(np.arange(CELLS) @ density) / (CELLS - 1) * top


def quantiles(density: Floats, top: float, at: Floats) -> Floats:
    """Works that so large a share of draws stays below.

    Source: the inverse of the sum of probabilities up to each cell, in a line between cells.
    """
    return np.interp(at, np.cumsum(density), np.arange(CELLS) / (CELLS - 1) * top)


def heaviest_path(density: Floats, top: float, depth: int) -> float:
    """Work of a micro batch in a pipeline of `depth` stages, as its steps follow one another.

    In one-forward-one-backward every rank runs, slot by slot, a forward and a backward pass in
    turn. A pass follows the last one of its rank, and that of the same micro batch on the rank
    before it; of all ways through the order the heaviest counts.
    Source: derived: rank k runs the forward pass of j in slot 2 j + k and its backward pass in slot
    2 j + 2 depth - 1 - k; where passes take alike beside attention, all such ways take the same
    number of slots, so the works along them decide.
    """
    works = quantiles(density, top, _drawn(depth))
    rank, reached = np.arange(depth), np.zeros((LINES, depth))
    edge = np.full((LINES, 1), -np.inf)
    for slot in range(2 * MICROBATCHES):
        forward = (slot - rank) % 2 == 0
        job = np.where(forward, slot - rank, slot + 1 + rank) // 2 - np.where(forward, 0, depth)
        before = np.concatenate([edge, reached[:, :-1]], axis=1)
        after = np.concatenate([reached[:, 1:], edge], axis=1)
        reached = np.maximum(reached, np.where(forward, before, after)) + works[:, job + depth]
    return float(reached.max(axis=1).mean()) / (2 * MICROBATCHES)


@lru_cache(maxsize=64)
def _drawn(depth: int) -> Floats:
    """Numbers between 0 and 1, one for each micro batch that a pipeline sees."""
    return np.random.default_rng(SEED).random((LINES, MICROBATCHES + 2 * depth))

"""How many layers each pipeline rank may hold in a step below some time, and all splits of those.

The virtual stages of a rank differ by one layer at most; which of them are the longer ones is the
same on all ranks, but for the ends of the pipeline, which are the shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.block_costs import DENSE, MOE, usual_layers
from costmodel.critical import Paths
from costmodel.schedules.program import IntMatrix
from costmodel.table import BoolColumn, FloatColumn, IntColumn
from planner.many_splits import traffic_of
from planner.split_kinds import Kinds
from planner.split_problem import Splittable, chord_of_min

MOST_STAGES = 4_000_000
"""Virtual stages of all splits of one layout that are listed together; of more splits than that the
integer program takes care. Source: assumed; a few seconds."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Fewest and most layers of every rank."""

    least: IntColumn
    most: IntColumn

    def equals(self, other: Windows) -> bool:
        """Are they the same?"""
        return bool((self.least == other.least).all() and (self.most == other.most).all())

    def count(self, layers: int) -> int:
        """Ways to spread so many layers. Source: derived, a sum over ranks in turn."""
        ways = np.ones(1)
        for slack in (self.most - self.least).tolist():
            ways = np.convolve(ways, np.ones(slack + 1))
        left = layers - int(self.least.sum())
        return int(ways[left]) if 0 <= left < len(ways) else 0

    def totals(self, layers: int) -> IntMatrix:
        """All of them; shape (split, rank)."""
        rows, left = np.zeros((1, 0), np.int64), np.array([layers])
        after_least = np.cumsum(self.least[::-1])[::-1] - self.least
        after_most = np.cumsum(self.most[::-1])[::-1] - self.most
        for rank, (least, most) in enumerate(zip(self.least, self.most, strict=True)):
            own = np.arange(least, most + 1)
            rest = left[:, None] - own
            at, pick = np.nonzero((rest >= after_least[rank]) & (rest <= after_most[rank]))
            rows = np.concatenate([rows[at], own[pick][:, None]], axis=1)
            left = rest[at, pick]
        return rows


def stages_of(row: Splittable, totals: IntMatrix) -> IntMatrix:
    """Layers of every virtual stage for layers of every rank, either way; (split, stage)."""
    vpp = row.shape[1]
    if vpp == 1:
        return totals[:, np.argsort(row.stage_of[:, 0])]
    one, other = (_spread(row, totals, longer_first=first) for first in (True, False))
    return np.concatenate([one, other[(one != other).any(axis=1)]])


def _spread(row: Splittable, totals: IntMatrix, *, longer_first: bool) -> IntMatrix:
    """The layers of each rank over its chunks, as evenly as can be."""
    vpp, last = row.shape[1], row.num_stages - 1
    layers = np.zeros((len(totals), row.num_stages), dtype=np.int64)
    for rank, own in enumerate(row.stage_of):
        order = np.arange(vpp) if longer_first else np.arange(vpp)[::-1]
        ends = np.isin(own[order], (0, last))
        place = np.empty(vpp, dtype=np.int64)
        place[np.concatenate([order[~ends], order[ends]])] = np.arange(vpp)
        base, extra = np.divmod(totals[:, rank], vpp)
        layers[:, own] = base[:, None] + (place < extra[:, None])
    return layers


def balanced(row: Splittable) -> IntMatrix:
    """Layers of every rank that make the work of the busiest rank least; (1, rank).

    Each layer goes to the rank that ends up with least work, those at the front first. All layers
    count as much as the last one.
    """
    pair = (row.costs.forward + row.costs.backward)[:, 0]
    ends = np.isin(row.stage_of, (0, row.num_stages - 1)).sum(axis=1)
    total = np.maximum(0, row.shape[1] - ends)
    work = np.array([row.ends[own].sum(axis=0) @ pair for own in row.stage_of])
    layer = pair[MOE if row.job.model.moe_layers[-1] else DENSE]
    work = work + total * layer
    for _ in range(row.job.model.num_hidden_layers - int(total.sum())):
        rank = int(np.argmin(work))
        total[rank] += 1
        work[rank] += layer
    return np.asarray(total[None, :])


def bounds_of_stages(row: Splittable) -> tuple[IntColumn, IntColumn]:
    """Fewest and most layers of every virtual stage: only the first and the last may be empty."""
    least = np.ones(row.num_stages, dtype=np.int64)
    least[[0, -1]] = 0
    return least, row.job.model.num_hidden_layers - least.sum() + least


def windows(
    row: Splittable,
    paths: Paths,
    value_s: float,
    *,
    memory: bool = True,
    within: Windows | None = None,
) -> Windows | None:
    """What no split outside can have: memory, or terms of the step below `value_s`; None if none.

    `within` is what is known already.

    Each rank's number is refused where some path is too long even if the other layers lie where
    they lengthen it least. Narrower windows of one rank leave fewer places to the layers of others,
    so this is repeated until nothing changes.
    """
    layers = row.job.model.num_hidden_layers
    behind, update = least_seconds(row, layers)
    beyond = np.minimum.accumulate(behind[:, ::-1], axis=1)[:, ::-1]  # more layers may hide more
    allowed = _by_work(row, value_s)
    if within:
        number = np.arange(layers + 1)
        allowed &= (number >= within.least[:, None]) & (number <= within.most[:, None])
        if not allowed.any(axis=1).all():
            return None
    while True:
        before, kinds = int(allowed.sum()), Kinds.of(row, *_ends_of(allowed))
        rates = _path_rates(row, paths, kinds, _ends_of(allowed)[1])
        needs = _needs(row, kinds) if memory else None
        for rank in range(len(allowed)):
            counts = np.flatnonzero(allowed[rank])
            if not len(counts):
                return None
            low, high = _ends_of(allowed)
            tail = np.where(
                paths.rank[:, None] == rank,
                behind[rank, counts],
                beyond[paths.rank, low[paths.rank]][:, None],
            )
            seconds = (rates.with_others(rank, counts, (low, high), layers) + tail).max(axis=0)
            allowed[rank, counts] = seconds + update[rank, counts] < value_s
            if needs:
                fits = (needs.alone(rank, counts) <= needs.rounding[:, None]).all(axis=0)
                allowed[rank, counts] &= fits
            if not allowed[rank].any():
                return None
        if int(allowed.sum()) == before:
            return Windows(*_ends_of(allowed))


def _by_work(row: Splittable, value_s: float) -> BoolColumn:
    """Numbers of layers that each rank can run in time, if the others run the rest; (rank, n)."""
    layers, vpp = row.job.model.num_hidden_layers, row.shape[1]
    if row.num_stages == 1:
        return np.asarray(np.arange(layers + 1)[None, :] == layers)
    pair = (row.costs.forward + row.costs.backward)[:, 0]
    ends = row.ends[row.stage_of].sum(axis=1) @ pair
    seconds = value_s / row.num_microbatches - ends
    kind, count = usual_layers(row.job)
    usual = np.floor(np.maximum(seconds / pair[kind] * (1 + ROUNDING), -1))
    most = np.minimum(usual + (layers - count), layers).astype(np.int64)
    empty = np.isin(row.stage_of, (0, row.num_stages - 1)).sum(axis=1)
    least = np.maximum(np.maximum(0, vpp - empty), layers - (most.sum() - most))
    number = np.arange(layers + 1)
    return np.asarray((number >= least[:, None]) & (number <= most[:, None]))


def _ends_of(allowed: BoolColumn) -> tuple[IntColumn, IntColumn]:
    """First and last number of layers that each rank may hold."""
    return np.argmax(allowed, axis=1), allowed.shape[1] - 1 - np.argmax(allowed[:, ::-1], axis=1)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Sums over the layers of ranks, from below: `fixed` + sum over ranks of slope * layers."""

    slope: FloatColumn
    """Shape (row, rank)."""
    fixed: FloatColumn
    rounding: FloatColumn

    @classmethod
    def of(cls, row: Splittable, kinds: Kinds, costs: FloatColumn, fixed: FloatColumn) -> _Rows:
        """From costs of shape (row, stage, kind).

        The chunks of a rank differ by one layer, and the shorter ones may be the dearer ones.
        """
        slope, start = kinds.least(costs)
        chunks = slope[:, row.stage_of]
        mean = chunks.mean(axis=2)
        uneven = (row.shape[1] - 1) * (mean - chunks.min(axis=2))
        total = fixed + start.sum(axis=1) - uneven.sum(axis=1)
        return cls(mean, total, np.abs(fixed) * ROUNDING)

    def alone(self, rank: int, counts: IntColumn) -> FloatColumn:
        """Rows of one rank with so many layers; (row, number)."""
        return self.fixed[:, None] + self.slope[:, [rank]] * counts

    def with_others(
        self, rank: int, counts: IntColumn, ends: tuple[IntColumn, IntColumn], layers: int
    ) -> FloatColumn:
        """Every row with so many layers on one rank and the others elsewhere; (row, number).

        Source: fractional knapsack; the other layers go where a row grows least.
        """
        others = np.arange(len(ends[0])) != rank
        low, high = (end[others] for end in ends)
        left = layers - counts - int(low.sum())
        order = np.argsort(self.slope[:, others], axis=1, kind="stable")
        slope = np.take_along_axis(self.slope[:, others], order, axis=1)
        room = (high - low)[order]
        before = np.cumsum(room, axis=1) - room
        put = np.clip(left[None, :, None] - before[:, None, :], 0, room[:, None, :])
        others_least = self.slope[:, others] @ low
        length = self.alone(rank, counts) + others_least[:, None]
        length += (put * slope[:, None]).sum(axis=2)
        possible = (left >= 0) & (left <= int((high - low).sum()))
        return np.where(possible, length, np.inf)


ROUNDING = 1e-12
"""Share of a sum of bytes that rounding may add."""


def _path_rates(row: Splittable, paths: Paths, kinds: Kinds, most: IntColumn) -> _Rows:
    """Seconds of paths.

    Of the layers of a stage, min(N, n) are recomputed, which is bounded by its chord.
    Source: derived.
    """
    one, ways = row.costs, [row.kinds[0], row.kinds[-1]]
    stage = np.empty(row.num_stages)
    stage[row.stage_of] = np.maximum(1, -(-most // row.shape[1]))[:, None]
    slope, start = chord_of_min(np.array(row.recomputed), bounds_of_stages(row)[0], stage)
    seconds = (one.forward[:, 0], one.backward[:, 0], one.weight[:, 0])
    passes = (paths.forward, paths.backward, paths.weight)
    costs = sum(c[:, :, None] * s[ways] for c, s in zip(passes, seconds, strict=True))
    again = one.again[ways, 0]
    again = again if row.recomputes_all else np.full_like(again, again.min())
    costs = costs + (paths.backward * slope)[:, :, None] * again
    fixed = sum((c @ row.ends * s).sum(axis=1) for c, s in zip(passes, seconds, strict=True))
    fixed = fixed + (paths.backward * start).sum(axis=1) * again.min()
    return _Rows.of(row, kinds, np.asarray(costs), np.asarray(fixed + paths.hops * row.p2p))


def _needs(row: Splittable, kinds: Kinds) -> _Rows:
    """Bytes of ranks beyond what they may allocate."""
    needs = row.memory_needs
    return _Rows.of(row, kinds, needs.costs[:, :, [0, -1]], needs.constants)


def _mixtures(row: Splittable, layers: int) -> IntMatrix:
    """(layers of one rank, dense ones among them), all that may be."""
    model = row.job.model
    dense, moe = model.num_dense_layers, model.num_moe_layers
    pairs = [(k, d) for k in range(layers + 1) for d in range(max(0, k - moe), min(k, dense) + 1)]
    return np.array(pairs)


def least_seconds(row: Splittable, layers: int) -> tuple[FloatColumn, FloatColumn]:
    """Least traffic and update seconds of each rank with 0, 1, ... layers; (rank, layers)."""
    pairs, one = _mixtures(row, layers), row.costs
    ends, kind = np.unique(row.ends[row.stage_of].sum(axis=1), axis=0, return_inverse=True)
    blocks = np.repeat(ends.astype(np.float64), len(pairs), axis=0)
    total, dense = np.tile(pairs, (len(ends), 1)).T
    blocks[:, DENSE], blocks[:, MOE] = dense, total - dense
    backward = blocks @ one.backward[:, 0] + total * float(one.again[:, 0].max())
    traffic = traffic_of(row, blocks, blocks @ one.forward[:, 0], backward)
    seconds = blocks @ (one.optimizer + one.offload)[:, 0]
    found = np.full((2, len(ends), layers + 1), np.inf)
    where = np.repeat(np.arange(len(ends)), len(pairs)), total
    np.minimum.at(found[0], where, traffic)
    np.minimum.at(found[1], where, seconds)
    return found[0, kind.ravel()], found[1, kind.ravel()]

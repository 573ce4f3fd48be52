"""All splits of a layout on which no known path is too long, without listing the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.pipeline import layers_before
from trainplan.costmodel.timeline import Paths
from trainplan.planner.stages.columns import IntSplitStages
from trainplan.planner.stages.problem.chunks import (
    Windows,
    chunk_ways,
    inner_chunks,
    num_chunk_ways,
    stage_ends,
)
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.spread import spread
from trainplan.planner.stages.solve.windows import ROUNDING, PathSeconds

MOST_WAYS = 20_000
"""Ways to spread the layers of one rank over its chunks that are listed. Source: assumed; they take
a tenth of a second."""
MOST_BEGINNINGS = 200_000
"""Beginnings of splits that are listed together where ranks have one stage; with more chunks there
are more that no path tells apart, and fewer are worth their time. Source: measured; a second."""
MOST_PATHS = 64
"""Paths that beginnings are compared with, those that leave least room. Source: measured."""
COMPARED_AT_ONCE = 1 << 22
"""Seconds of paths that are compared together, so that they stay in memory."""
MOST_UNSORTED = 100
"""Beginnings, or ways, of which each is compared with all of the others. Source: measured."""


def num_splits(problem: StageProblem, window: Windows[IntColumn]) -> float:
    """Splits within some windows.

    Source: ranks take layers independently of another, so the ways of several ranks are the
    convolution of those of each.
    """
    layers = problem.job.model.num_hidden_layers
    if problem.alike:
        return float(window.count(layers)) * min(2, problem.shape[1])
    ways = np.ones(1)
    for own, least, most in _within(problem, window):
        each = [num_chunk_ways(own, number, number) for number in range(most + 1)]
        each[:least] = [0] * least
        ways = np.convolve(ways, np.array(each, dtype=np.float64))
    return float(ways[layers]) if layers < len(ways) else 0.0


def _within(
    problem: StageProblem, window: Windows[IntColumn]
) -> list[tuple[tuple[int, ...], int, int]]:
    """Chunks of each rank that are never empty, and its fewest and most layers."""
    inner = [tuple(own) for own in inner_chunks(problem.stage_of).tolist()]
    return list(zip(inner, window.least.tolist(), window.most.tolist(), strict=True))


def shorter_splits(
    problem: StageProblem, paths: Paths, value_s: float, window: Windows[IntColumn]
) -> IntSplitStages | None:
    """Layers of every virtual stage in the splits whose paths may all be below a time.

    Shape (split, stage); None where there are too many to list. Source: derived; a beginning of a
    split is dropped where some path is too long however the layers that are left are spread over
    the ranks behind it.
    """
    if problem.alike and problem.shape[1] > 1:
        parts = [_Sums(problem, paths, window, first).below(value_s) for first in (True, False)]
        found = [part for part in parts if part is not None]
        return np.unique(np.concatenate(found), axis=0) if len(found) == len(parts) else None
    if max(num_chunk_ways(*rank) for rank in _within(problem, window)) > MOST_WAYS:
        return None
    return _Sums(problem, paths, window).below(value_s)


@dataclass(frozen=True, slots=True)
class _Ways:
    """Ways to spread the layers of one rank, and what they add to every path."""

    layers: IntMatrix
    """Of its chunks; (way, chunk)."""
    seconds: FloatColumn
    """(path, way)."""

    @property
    def total(self) -> IntColumn:
        """Layers of the rank."""
        return np.asarray(self.layers.sum(axis=1))

    def take(self, ways: IntColumn) -> _Ways:
        """Some of them."""
        return _Ways(self.layers[ways], self.seconds[:, ways])

    def least(self, most: int) -> FloatColumn:
        """Least seconds of every path with 0, 1, ... layers on the rank; (path, layers)."""
        found = np.full((len(self.seconds), most + 1), np.inf)
        total = self.total
        for layers in np.unique(total[total <= most]).tolist():
            found[:, layers] = self.seconds[:, total == layers].min(axis=1)
        return found


@dataclass(frozen=True)
class _Sums:
    """Seconds of paths as sums over ranks, each with its ways."""

    problem: StageProblem
    paths: Paths
    window: Windows[IntColumn]
    longer_first: bool | None = None
    """Of chunks that are alike; None: they may hold any layers."""

    def below(self, value_s: float) -> IntSplitStages | None:
        """Splits with no path above a time."""
        most_s = value_s * (1 + ROUNDING) - self._fixed
        layers, ranks = self.problem.job.model.num_hidden_layers, self.problem.shape[0]
        most = MOST_BEGINNINGS // (1 if self.problem.alike else self.problem.shape[1])
        ways = self._possible([self._ways(rank) for rank in range(ranks)], most_s)
        rests = _rests([one.least(layers) for one in ways], layers)
        near = np.argsort(most_s - rests[0][:, layers], kind="stable")[:MOST_PATHS]
        most_s, rests = most_s[near], [rest[near] for rest in rests]
        ways = [_Ways(one.layers, one.seconds[near]) for one in ways]
        left, seconds = np.array([layers]), np.zeros((1, len(most_s)))
        chosen = np.zeros((1, self.problem.num_stages), dtype=np.int64)
        for rank, one in enumerate(ways):
            at, way = _matches((left, seconds), one, rests[rank + 1], most_s, most)
            if len(at) > most:
                return None
            left, seconds = left[at] - one.total[way], seconds[at] + one.seconds.T[way]
            chosen = chosen[at]
            chosen[:, self.problem.stage_of[rank]] = one.layers[way]
        return np.asarray(chosen[left == 0])

    def _possible(self, ways: list[_Ways], most_s: FloatColumn) -> list[_Ways]:
        """Without those that make some path too long whatever the other ranks hold.

        Source: as `_rests`, from both ends.
        """
        layers = self.problem.job.model.num_hidden_layers
        least = [one.least(layers) for one in ways]
        behind, before = _rests(least, layers), _rests(least[::-1], layers)[::-1]
        found = []
        for rank, one in enumerate(ways):
            others = _sums_of(before[rank], behind[rank + 1])
            seconds = one.seconds + others[:, layers - one.total]
            found.append(one.take(np.flatnonzero((seconds <= most_s[:, None]).all(axis=0))))
        return found

    def _ways(self, rank: int) -> _Ways:
        """Those of one rank within its window."""
        problem, paths, own = self.problem, self.paths, self.problem.stage_of[rank]
        if self.longer_first is None:
            layers = chunk_ways(*_within(problem, self.window)[rank])
        else:
            number = np.arange(self.window.least[rank], self.window.most[rank] + 1)
            totals = np.tile(number[:, None], (1, problem.shape[0]))
            layers = spread(problem, totals, longer_first=self.longer_first)[:, own]
        seconds = np.zeros((len(paths.rank), len(layers)))
        for chunk, stage in enumerate(own.tolist()):
            seconds += self._stage(stage)[:, layers[:, chunk]]
        ends = paths.rank == rank
        seconds[ends] += problem.least_seconds[0][rank, layers.sum(axis=1)]
        return _Ways(layers, seconds)

    def _stage(self, stage: int) -> FloatColumn:
        """What 0, 1, ... layers of one virtual stage add to every path; (path, layers).

        Source: derived; which layers a stage holds depends on those before it, so of the dearer
        kinds there are as few as can be.
        """
        problem, backward = self.problem, self.paths.backward[:, stage, None]
        again = problem.costs.recompute_forward[stage, list(problem.kinds)]
        each = self._of.layers[:, stage] + backward * (again - again.min()) * problem.recomputes_all
        number, cheapest = np.arange(self._ends[1][stage] + 1), each.min(axis=1, keepdims=True)
        seconds = cheapest * number
        if len(problem.kinds) > 1:
            seconds = seconds + (each - cheapest) @ self._fewest(stage)
        return np.asarray(seconds + backward * np.minimum(problem.recomputed, number) * again.min())

    def _fewest(self, stage: int) -> IntColumn:
        """Fewest layers of each kind among 0, 1, ... of a stage; (kind, layers)."""
        before = layers_before(self.problem.job.model.kind_of_layer)
        last, (few, many) = len(before) - 1, self._ends
        number = np.arange(many[stage] + 1)
        begins = np.arange(int(few[:stage].sum()), min(last, int(many[:stage].sum())) + 1)[:, None]
        inside = before[np.minimum(begins + number, last)] - before[begins]
        may = (begins + number <= last)[..., None]
        return np.asarray(np.where(may, inside, last + 1).min(axis=0).T)

    @cached_property
    def _ends(self) -> tuple[IntColumn, IntColumn]:
        """Fewest and most layers of every virtual stage."""
        return stage_ends(
            self.problem.stage_of, self.window.least, self.window.most, alike=self.problem.alike
        )

    @cached_property
    def _of(self) -> PathSeconds:
        return PathSeconds(self.problem, self.paths)

    @cached_property
    def _fixed(self) -> FloatColumn:
        """Embedding, head and messages on every path, and the optimizer step at least."""
        problem, window = self.problem, self.window
        update = problem.least_after(window.least, window.most)[1]
        return np.asarray(self._of.ends + self.paths.crossed @ problem.p2p + update)


def _rests(least: list[FloatColumn], layers: int) -> list[FloatColumn]:
    """Seconds at least on the ranks from each one on with 0, 1, ... layers; (path, layers).

    Source: dynamic programming from the last rank to the first, each path for itself: a rest is the
    least, over the layers of one rank, of its seconds and those of the rest behind it.
    """
    nothing = np.where(np.arange(layers + 1) > 0, np.inf, np.zeros((len(least[0]), 1)))
    rests = [nothing]
    for one in least[::-1]:
        rests.insert(0, _sums_of(one, rests[0]))
    return rests


def _sums_of(one: FloatColumn, other: FloatColumn) -> FloatColumn:
    """Least sums of two numbers of layers that add up to 0, 1, ...; (path, layers)."""
    size = one.shape[1]
    found = np.full(one.shape, np.inf)
    for number in np.flatnonzero(np.isfinite(one).any(axis=0)).tolist():
        rest = one[:, number, None] + other[:, : size - number]
        found[:, number:] = np.minimum(found[:, number:], rest)
    return found


def _matches(
    beginnings: tuple[IntColumn, FloatColumn],
    ways: _Ways,
    rest: FloatColumn,
    most_s: FloatColumn,
    most: int,
) -> tuple[IntColumn, IntColumn]:
    """Beginnings and ways of the next rank on which no path need be too long.

    Of beginnings are given the layers that are left, and the seconds of every path so far. More
    than `most` are not all told.
    """
    left, seconds = beginnings
    total, found, listed_so_far = ways.total, [np.zeros((2, 0), dtype=np.int64)], 0
    for some, others in _likely(beginnings, ways, rest, most_s):
        at, way = some, others
        for path in range(len(most_s)):
            longer = seconds[at, path] + ways.seconds[path, way]
            wins = longer + rest[path, left[at] - total[way]] <= most_s[path]
            at, way = at[wins], way[wins]
        found.append(np.stack([at, way]))
        listed_so_far += len(at)
        if listed_so_far > most:
            break
    at, way = np.concatenate(found, axis=1)
    order = np.lexsort((way, at))
    return at[order], way[order]


def _likely(
    beginnings: tuple[IntColumn, FloatColumn], ways: _Ways, rest: FloatColumn, most_s: FloatColumn
) -> Iterator[tuple[IntColumn, IntColumn]]:
    """`_pairs` of beginnings with as many layers left, and ways with enough ranks behind."""
    (left, seconds), total = beginnings, ways.total
    for layers in np.unique(left).tolist():
        own, may = np.flatnonzero(left == layers), np.flatnonzero(total <= layers)
        may = may[np.isfinite(rest[:, layers - total[may]]).all(axis=0)]
        room = most_s[:, None] - ways.seconds[:, may] - rest[:, layers - total[may]]
        for some, others in _pairs(seconds[own], room, most_s):
            yield own[some], may[others]


def _pairs(
    seconds: FloatColumn, room: FloatColumn, most_s: FloatColumn
) -> Iterator[tuple[IntColumn, IntColumn]]:
    """Pairs of a beginning and a way that may fit, in parts.

    `seconds` is (beginning, path), `room` is (path, way). Source: derived; all beginnings that fit
    a way are among those within its room on one path, and of the paths each way takes the one
    within which fewest are. Where there are few, to sort them takes longer than to compare all.
    """
    size, ways = len(seconds), np.arange(room.shape[1])
    order, number, path = np.arange(size)[None], np.full(len(ways), size), np.zeros_like(ways)
    if min(size, len(ways)) > MOST_UNSORTED:
        order = np.argsort(seconds.T, axis=1)
        room = room + ROUNDING * np.abs(most_s)[:, None]
        sides = zip(np.take_along_axis(seconds.T, order, axis=1), room, strict=True)
        inside = np.array([np.searchsorted(one, most, side="right") for one, most in sides])
        number, path = inside.min(axis=0), inside.argmin(axis=0)
    parts = np.cumsum(number) // (COMPARED_AT_ONCE // len(room))
    for part in np.split(ways, np.flatnonzero(np.diff(parts)) + 1):
        way = np.repeat(part, number[part])
        first = np.repeat(np.cumsum(number[part]) - number[part], number[part])
        yield order[path[way], np.arange(len(way)) - first], way

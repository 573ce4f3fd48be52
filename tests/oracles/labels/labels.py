"""Stages filled with layers, by labels from stage to stage.

A label says how many layers are placed, and what rows and needs have grown to. It is dropped if
another one at the same place is as good in every respect, or if the least that is left to place
brings it to the best value known. Rows of a group that grow alike from here on are one respect,
their largest; a need that no later stage touches is none. Sweeps keep the most promising labels,
more in every sweep; one that leaves out no promising label is a proof. Source: derived; resource
constrained shortest paths, Desrochers and Soumis, INFOR 26, 1988.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice, pairwise

import numpy as np

from tests.oracles.labels.completions import Path, best_weights, even
from tests.oracles.labels.pareto import SAME, nondominated
from tests.oracles.labels.partial import Grown, Labels, Respects, joined, most_promising
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.planner.solvers.layer_assignment import (
    Assigned,
    Counts,
    LayerAssignment,
    allowed,
    limits,
)
from trainplan.planner.work import Deadline

NARROWEST, WIDER = 100, 8
"""Labels of a stage kept in the first sweep, and how many times more in the next. Source:
assumed."""
CONTENTION = 100
"""Times the width, new labels of a stage that are thinned before they are compared. Source:
assumed."""
AT_ONCE = 2_000_000
"""Numbers of new labels made at once: 16 MB. Source: assumed."""
WAYS_AT_ONCE = 20_000
"""Ways to fill a stage made at once, between two looks at the clock. Source: assumed; 50 ms."""


def solve(problem: LayerAssignment, deadline: Deadline, cutoff: float = np.inf) -> Assigned:
    """The best answer whose value is below `cutoff`, as far as the deadline allows."""
    path = Path(problem)
    if not path.possible:
        return Assigned(None, np.inf, np.inf)
    nothing = np.zeros((len(problem.least), len(problem.kind_of_way)), np.int64)
    best = Assigned(None, np.inf, problem.value(nothing))
    if deadline.seconds_left() > 0:
        search, width = Search(path, deadline), NARROWEST
        best = search.sweep(best, cutoff, width)
        if not _ended(best, cutoff):
            search.weights.append(best_weights(path, deadline))
        while not _ended(best, cutoff) and deadline.seconds_left() > 0:
            width *= WIDER
            best = search.sweep(best, cutoff, width)
    return replace(best, lower_bound=best.value) if _ended(best, cutoff) else best


def _ended(best: Assigned, cutoff: float) -> bool:
    """Does the bound say that there is nothing better?"""
    return best.lower_bound >= _improved(min(best.value, cutoff))


def _improved(value: float) -> float:
    """What is no smaller is no improvement but rounding."""
    return value - SAME * abs(value) if np.isfinite(value) else value


class Search:
    """Sweeps over the stages of one problem."""

    def __init__(self, path: Path, deadline: Deadline) -> None:
        self.path, self.problem, self.deadline = path, path.problem, deadline
        self.stages = len(self.problem.least)
        self.limits = limits(self.problem)
        self.row_tails = path.tails(self.problem.costs)
        self.need_tails = path.tails(self.problem.needs)
        self.most_tails = -path.tails(-self.problem.needs)
        self.weights = [even(path)]
        self.respects = [Respects(self.problem, s) for s in range(self.stages + 1)]
        self.root = self._root()

    def _root(self) -> Labels:
        """The label of nothing placed; none if a need cannot be met."""
        here, none = self.respects[0], np.zeros(1, np.int64)
        rows = np.array([[self.problem.constants[rows].max() for rows in here.members]])
        needs, ways = np.zeros((1, len(here.needs))), len(self.problem.kind_of_way)
        begins = np.ones((1, len(self.problem.refused)), np.bool_)
        counts = np.zeros((1, ways), np.int64)
        bound = self._bound(0, none, rows, needs)
        root = Labels(none, rows, needs, begins, bound, none, counts)
        met = bool((self.need_tails[:, 0, 0] <= self.limits).all())
        return root.take(np.array([met]))

    def sweep(self, best: Assigned, cutoff: float, width: int) -> Assigned:
        """Go over the stages once, with no more labels in front of a stage than the width."""
        known, labels, left = min(best.value, cutoff), self.root, np.inf
        trail: list[Labels] = []
        for s in range(self.stages):
            new = self._next(labels, s, known)
            if new is None:  # out of time
                bound = min(left, known, labels.smallest_bound())
                return replace(best, lower_bound=max(best.lower_bound, bound))
            contention, outside = most_promising(new, CONTENTION * width)
            labels, behind = most_promising(self._undominated(contention, s + 1), width)
            left = min(left, outside, behind)
            trail.append(labels)
        best = self._answer(trail, best, cutoff)
        bound = min(left, best.value, cutoff)
        return replace(best, lower_bound=max(best.lower_bound, bound))

    def _next(self, labels: Labels, s: int, known: float) -> Labels | None:
        """Labels behind stage `s`, without those that cannot beat the known value."""
        parts = [self._grown(labels, np.zeros(0, np.int64), s, self.root.counts)]
        every = ((mine, ways) for mine, held in self._held(labels, s) for ways in self._ways(held))
        for mine, ways in every:
            step = max(1, AT_ONCE // (len(ways) * (1 + len(self.respects[s].row))))
            for start in range(0, len(mine), step):
                if self.deadline.seconds_left() <= 0:
                    return None
                part = self._grown(labels, mine[start : start + step], s, ways)
                parts.append(part.take(part.bound < _improved(known)))
        return joined(parts)

    def _held(self, labels: Labels, s: int) -> Iterator[tuple[IntColumn, tuple[int, ...]]]:
        """Layers of each kind that stage `s` may hold, and the labels behind which it may."""
        before, ends = self.path.before, self.path.ends[s]
        for n in range(int(self.problem.least[s]), int(self.problem.most[s]) + 1):
            end = labels.place + n
            mine = np.flatnonzero((end >= ends.start) & (end < ends.stop))
            held = before[:, end[mine]] - before[:, labels.place[mine]]
            alike: dict[tuple[int, ...], list[int]] = {}
            for label, each in zip(mine.tolist(), held.T.tolist(), strict=True):
                alike.setdefault(tuple(each), []).append(label)
            yield from ((np.array(group, np.int64), each) for each, group in alike.items())

    def _ways(self, held: tuple[int, ...]) -> Iterator[Counts]:
        """All counts of a stage that holds so many layers of each kind, in parts; (one, way)."""
        choices = _choices(held, [len(ways) for ways in self.path.ways])
        while some := list(islice(choices, WAYS_AT_ONCE)):
            counts = np.zeros((len(some), len(self.problem.kind_of_way)), np.int64)
            for number, ways in enumerate(self.path.ways):
                counts[:, ways] = [choice[number] for choice in some]
            yield counts

    def _grown(self, labels: Labels, mine: IntColumn, s: int, ways: Counts) -> Labels:
        """Each of my labels, with stage `s` filled in each of these ways; those that fit."""
        here, after, costs = self.respects[s], self.respects[s + 1], self.problem.costs
        parent, way = np.repeat(mine, len(ways)), np.tile(np.arange(len(ways)), len(mine))
        place = labels.place[parent] + ways.sum(axis=1)[way]
        needs = labels.needs[parent] + (ways @ self.problem.needs[here.needs, s].T)[way]
        least = needs + self.need_tails[here.needs, s + 1][:, place].T
        fits = (least <= self.limits[here.needs]).all(axis=1)
        parent, way, place, needs = parent[fits], way[fits], place[fits], needs[fits]
        rows = after.merged(labels.rows[parent] + (ways @ costs[here.row, s].T)[way], here)
        needs = needs[:, np.isin(here.needs, after.needs)]
        begins = labels.refused[parent]
        for number, answer in enumerate(self.problem.refused):
            begins[:, number] &= (ways == answer[s]).all(axis=1)[way]
        bound = self._bound(s + 1, place, rows, needs)
        return Labels(place, rows, needs, begins, bound, parent, ways[way])

    def _bound(self, s: int, place: IntColumn, rows: Grown, needs: Grown) -> FloatColumn:
        """No allowed answer that begins so has a smaller value.

        Source: derived. A value is no less than what each row comes to at least, the largest of
        each group; nor than rows weighed in any way with weights that add up to one in a group,
        plus needs above their capacities times weights that are not negative.
        """
        here = self.respects[s]
        least = rows + self.row_tails[here.row, s][:, place].T
        bound = np.zeros(len(rows))
        for g in np.unique(here.group):
            bound += least[:, here.group == g].max(axis=1)
        over = needs - self.limits[here.needs]
        for one in self.weights:
            weight = np.array([one.rows[members].sum() for members in here.members], np.float64)
            relaxed = rows @ weight + over @ one.needs[here.needs] + one.tails[0, s, place]
            bound = np.maximum(bound, relaxed)
        return bound

    def _undominated(self, labels: Labels, s: int) -> Labels:
        """Labels in front of stage `s` that no other at the same place is as good as."""
        here, parts = self.respects[s], [labels.take(np.zeros(0, np.int64))]
        for place in np.unique(labels.place).tolist():
            mine = labels.take(labels.place == place)
            most = mine.needs.max(axis=0, initial=0.0) + self.most_tails[here.needs, s, place]
            tight = (most > self.limits[here.needs])[here.needs_compared]
            points = [mine.rows[:, here.rows_compared], mine.needs[:, here.needs_compared[tight]]]
            parts.append(mine.take(nondominated(np.hstack([*points, mine.refused]))))
        return joined(parts)

    def _answer(self, trail: list[Labels], best: Assigned, cutoff: float) -> Assigned:
        """The best of the last labels, if it is better than what is known."""
        last = trail[-1]
        for number in np.argsort(last.bound, kind="stable").tolist():
            counts = self._counts(trail, number)
            if allowed(self.problem, counts):
                value = self.problem.value(counts)
                return (
                    replace(best, counts=counts, value=value)
                    if value < min(best.value, cutoff)
                    else best
                )
        return best

    @staticmethod
    def _counts(trail: list[Labels], number: int) -> Counts:
        """The counts that lead to a label."""
        counts = []
        for labels in reversed(trail):
            counts.append(labels.counts[number])
            number = int(labels.parent[number])
        return np.array(counts[::-1], np.int64)


def _choices(held: Sequence[int], ways: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to run so many layers of each kind, without a list of them all."""
    if not held:
        yield ()
        return
    for first in _shares(held[0], ways[0]):
        for rest in _choices(held[1:], ways[1:]):
            yield (first, *rest)


def _shares(layers: int, ways: int) -> Iterator[tuple[int, ...]]:
    """All numbers of layers run in each way."""
    for bars in combinations(range(layers + ways - 1), ways - 1):
        ends = (-1, *bars, layers + ways - 1)
        yield tuple(b - a - 1 for a, b in pairwise(ends))

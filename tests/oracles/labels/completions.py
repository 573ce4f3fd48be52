"""What the layers that are left cost at least: bounds for a partial `LayerAssignment`.

A price for each layer of each stage and way makes the rest a shortest path over the places where
stages end, solved for every place at once. With the price of one row that is the least this row
can still grow. With rows weighed against each other, weights of a group adding up to one, and
needs weighed above their capacities, it bounds the value: Lagrange's relaxation. The weights are
sought by subgradients. Source: Geoffrion, Mathematical Programming Study 2, 1974; the rest derived.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.columns import FloatColumn
from trainplan.planner.solvers.layer_assignment import (
    Coefficients,
    Counts,
    LayerAssignment,
    limits,
    reach,
)
from trainplan.planner.work import Deadline

Tails = NDArray[np.float64]
"""The least a price can still add; shape (price, stage to fill next, layers placed before it)."""

ROUNDS, STEP, SLOWER, MOST = 120, 2.0, 0.7, 50.0
"""Subgradients tried, the length of the first, the power by which they shorten, and the longest
change of the logarithm of a weight. Source: assumed."""


class Path:
    """The stages of a problem, and the layers each may begin and end with."""

    def __init__(self, problem: LayerAssignment) -> None:
        self.problem = problem
        self.kinds = tuple(sorted(set(problem.layers)))
        layers = np.array(problem.layers, np.int64)
        self.before = np.array(
            [np.concatenate([[0], np.cumsum(layers == kind)]) for kind in self.kinds], np.int64
        ).reshape(len(self.kinds), len(layers) + 1)
        self.ways = [
            [w for w, kind in enumerate(problem.kind_of_way) if kind == mine] for mine in self.kinds
        ]
        first, last = reach(problem)
        self.possible = len(first) > 0 and bool((first <= last).all()) and all(self.ways)
        self.ends = [range(low, high + 1) for low, high in zip(first, last, strict=True)]

    def tails(self, prices: Coefficients) -> Tails:
        """The least that prices of shape (price, stage, way) add up to, from every place on."""
        stages, layers = prices.shape[1], len(self.problem.layers)
        tails = np.full((len(prices), stages + 1, layers + 1), np.inf)
        tails[:, stages, layers] = 0.0
        for s in reversed(range(stages)):
            sums = self._cheapest(prices, s) @ self.before
            after = sums + tails[:, s + 1]
            for n in range(int(self.problem.least[s]), int(self.problem.most[s]) + 1):
                rest = after[:, n:]
                np.minimum(tails[:, s, : rest.shape[1]], rest, out=tails[:, s, : rest.shape[1]])
            tails[:, s] -= sums
        return tails

    def cheapest(self, prices: Coefficients, tails: Tails) -> Counts:
        """An answer of the least price, needs apart; `prices` and `tails` of one price."""
        counts, place = np.zeros(prices.shape[1:], np.int64), 0
        for s in range(len(counts)):
            sums = (self._cheapest(prices, s) @ self.before)[0]
            least = place + int(self.problem.least[s])
            most = min(place + int(self.problem.most[s]), len(self.problem.layers))
            end = least + int(np.argmin((sums + tails[0, s + 1])[least : most + 1]))
            for ways, before in zip(self.ways, self.before, strict=True):
                way = ways[int(np.argmin(prices[0, s, ways]))]
                counts[s, way] = before[end] - before[place]
            place = end
        return counts

    def _cheapest(self, prices: Coefficients, s: int) -> Tails:
        return np.stack([prices[:, s, ways].min(axis=1) for ways in self.ways], axis=1)


@dataclass(frozen=True, slots=True)
class Weights:
    """One relaxation."""

    rows: FloatColumn
    """Of every row of costs; those of a group add up to one."""
    needs: FloatColumn
    """Of every need; not negative."""
    tails: Tails
    """Of the weighed prices; shape (1, stage, layers)."""
    bound: float
    """No allowed answer has a smaller value."""


def weighed(path: Path, rows: FloatColumn, needs: FloatColumn) -> Weights:
    """The relaxation with these weights."""
    problem = path.problem
    tails = path.tails(prices(problem, rows, needs))
    bound = float(rows @ problem.constants - needs @ limits(problem) + tails[0, 0, 0])
    return Weights(rows, needs, tails, bound)


def prices(problem: LayerAssignment, rows: FloatColumn, needs: FloatColumn) -> Coefficients:
    """What a layer adds to the weighed rows and needs; shape (1, stage, way)."""
    weighed_costs = np.tensordot(rows, problem.costs, 1) + np.tensordot(needs, problem.needs, 1)
    return np.asarray(weighed_costs, np.float64)[None]


def even(path: Path) -> Weights:
    """Rows of a group weigh alike, needs nothing."""
    sizes = np.bincount(path.problem.group, minlength=1)
    return weighed(path, 1.0 / sizes[path.problem.group], np.zeros(len(path.problem.needs)))


def best_weights(path: Path, deadline: Deadline) -> Weights:
    """The best weights that a number of subgradients leads to."""
    problem, now = path.problem, even(path)
    best, rows, needs = now, now.rows, now.needs
    units = np.maximum(problem.needs.max(axis=(1, 2), initial=0.0), np.abs(limits(problem)))
    units[units == 0] = 1.0
    scale = abs(now.bound) or 1.0
    for k in range(ROUNDS):
        if deadline.seconds_left() <= 0:
            break
        counts = path.cheapest(prices(problem, rows, needs), now.tails)
        step = STEP / (1 + k) ** SLOWER
        grown = np.einsum("isw,sw->i", problem.costs, counts) + problem.constants
        over = np.einsum("jsw,sw->j", problem.needs, counts) - limits(problem)
        rows = rows * np.exp(np.clip(step * grown / scale, -MOST, MOST))
        rows = rows / np.bincount(problem.group, rows, minlength=1)[problem.group]
        needs = np.maximum(0.0, needs + step * over * scale / units**2)
        now = weighed(path, rows, needs)
        best = max(best, now, key=lambda one: one.bound)
    return best

"""Good orders of nodes, by moving few at a time.

Deterministic: equal input gives the same order. Source: derived; local search over exchanges, as
for quadratic assignment, Burkard, Dell'Amico, Martello, Assignment Problems, SIAM 2009, section
8.2, and over stretches, as for tours, Croes, A method for solving traveling-salesman problems,
Operations Research 6, 1958.
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.placement import (
    NodeLinks,
    Orders,
    PlacementCosts,
    placed_seconds,
    slow_link_seconds,
)

STARTS = 4
"""Orders that are improved, the best of those tried first."""
ALL_PAIRS_NODES = 32
"""Up to so many nodes every pair of places is tried; beyond, those of the worst nodes."""
WORST_NODES = 4
CHAINS = 16
BATCH_LOOKUPS = 1_000_000
"""Links looked up at once."""
MOST_LOOKUPS = 4_000_000
"""Links looked up to improve one order, some tenths of a second."""
MOST_TIES = 1_000
"""Orders with the same step time among which that with the fewest slow links is sought."""
CLOSE = 1e-4
"""Relative; an order so near to a bound is not improved."""
EQUAL = 1e-12
"""Relative; smaller differences of a step time are rounding."""


def good_order(costs: PlacementCosts, nodes: NodeLinks, least_seconds: float) -> IntColumn:
    """The best order found; the given one unless another is faster.

    `least_seconds` is a step time no order beats: near it the search ends.
    """
    starts = np.array([*_starts(nodes)])
    seconds = placed_seconds(costs, nodes, starts)
    slow_links = slow_link_seconds(costs, nodes, starts)
    picked = starts[np.lexsort((slow_links, seconds))[:STARTS]]
    tried = [starts[0]]
    for start in picked:
        tried.append(_improved(costs, nodes, start, least_seconds))
        if placed_seconds(costs, nodes, tried[-1][None])[0] <= least_seconds * (1 + CLOSE):
            break
    return best_of(costs, nodes, np.array(tried))


def best_of(costs: PlacementCosts, nodes: NodeLinks, orders: Orders) -> IntColumn:
    """The fastest; of equally fast ones the first."""
    seconds = placed_seconds(costs, nodes, orders)
    return np.asarray(orders[np.argmax(seconds <= seconds.min() * (1 + EQUAL))])


def _starts(nodes: NodeLinks) -> Iterator[IntColumn]:
    """The given order, slow nodes together, and chains of fast links from several nodes."""
    count = len(nodes.slowness)
    yield np.arange(count)
    yield np.argsort(nodes.slowness, kind="stable")
    yield np.argsort(-nodes.slowness, kind="stable")
    worst_first = np.argsort(-nodes.slowdown.sum(axis=1), kind="stable")
    for first in dict.fromkeys([*worst_first[: CHAINS // 2], *worst_first[::-1][: CHAINS // 2]]):
        chain = _chain(nodes, int(first))
        yield chain
        yield chain[::-1]


def _chain(nodes: NodeLinks, first: int) -> IntColumn:
    """Every node after the one it reaches fastest; of equals the one most like it."""
    left = np.ones(len(nodes.slowness), dtype=bool)
    chain = [first]
    left[first] = False
    while left.any():
        others = np.flatnonzero(left)
        here = nodes.slowdown[chain[-1], others]
        unlike = np.abs(nodes.slowness[others] - nodes.slowness[chain[-1]])
        chain.append(int(others[np.lexsort((unlike, here))[0]]))
        left[chain[-1]] = False
    return np.array(chain)


def _improved(
    costs: PlacementCosts, nodes: NodeLinks, order: IntColumn, least_seconds: float
) -> IntColumn:
    """Move nodes while that makes the step shorter, or as short with fewer slow links."""
    best, left = order, MOST_LOOKUPS
    now, enough = _value(costs, nodes, order), _units(costs, least_seconds * (1 + CLOSE))
    while left > 0 and now[0] > enough:
        moved = _moved(best, _pairs(nodes, best))
        left -= len(moved) * _lookups(costs)
        moved = _fastest(costs, nodes, moved)
        other = np.asarray(moved[np.argmin(slow_link_seconds(costs, nodes, moved))])
        value = _value(costs, nodes, other)
        if value >= now:
            break
        best, now = other, value
    return best


def _fastest(costs: PlacementCosts, nodes: NodeLinks, orders: Orders) -> Orders:
    """Those with the shortest step."""
    size = max(1, BATCH_LOOKUPS // _lookups(costs))
    parts = [orders[start : start + size] for start in range(0, len(orders), size)]
    seconds = [placed_seconds(costs, nodes, part) for part in parts]
    units = np.round(_units(costs, np.concatenate(seconds)))
    return np.asarray(orders[units == units.min()][:MOST_TIES])


def _value(costs: PlacementCosts, nodes: NodeLinks, order: IntColumn) -> tuple[float, float]:
    """Step time, rounded so that equals are equal, and seconds of slow links."""
    seconds = placed_seconds(costs, nodes, order[None])
    slow_links = slow_link_seconds(costs, nodes, order[None])
    both = np.round(_units(costs, np.concatenate([seconds, slow_links])))
    return float(both[0]), float(both[1])


def _units(costs: PlacementCosts, seconds: FloatColumn | float) -> FloatColumn:
    """Seconds in the smallest part of a step that is no rounding."""
    return np.asarray(seconds / (costs.step_seconds * EQUAL))


def _pairs(nodes: NodeLinks, order: IntColumn) -> Orders:
    """Places to move: all pairs, or those with the places of the slowest links."""
    count = len(order)
    if count <= ALL_PAIRS_NODES:
        return np.array([*combinations(range(count), 2)]).reshape(-1, 2)
    near = nodes.slowdown[order, np.roll(order, -1)]
    blame = np.maximum(near, np.roll(near, 1)) * nodes.slowness[order]
    worst = np.argsort(-blame, kind="stable")[:WORST_NODES]
    pairs = [(min(a, b), max(a, b)) for a in worst.tolist() for b in range(count) if a != b]
    return np.array([*dict.fromkeys(pairs)])


def _lookups(costs: PlacementCosts) -> int:
    """Links that decide one step time."""
    terms = (term for rank in costs.ranks for term in (*rank.inside, rank.traffic))
    return 1 + costs.paths[:, :, 0].size + sum(len(term.pairs) for term in terms)


def _moved(order: IntColumn, pairs: Orders) -> Orders:
    """The order after each move: two nodes exchanged, a stretch turned round, a node moved on."""
    place, (first, last) = np.arange(len(order)), pairs.T[:, :, None]
    between = (place >= first) & (place <= last)
    turned = np.where(between, first + last - place, place)
    exchanged = np.where((place == first) | (place == last), turned, place)
    onward = np.where(between, np.where(place < last, place + 1, first), place)
    backward = np.where(between, np.where(place > first, place - 1, last), place)
    return np.asarray(order[np.concatenate([exchanged, turned, onward, backward])])

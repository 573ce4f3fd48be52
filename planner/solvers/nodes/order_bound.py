"""Step time that no order of the nodes beats.

A node that a group links to `k` others has no better than its `k`-th best link there; a group of
`size` nodes needs links that join as many; every node is in some pipeline rank, and every pipeline
rank has some node.

Source: each line keeps one necessary condition of an order and drops the others, so the least step
under all lines is no more than that of any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import FloatColumn, FloatMatrix
from trainplan.costmodel.comm import Pairs
from trainplan.costmodel.placement import NodeLinks, PlacementCosts, RankCosts, Term
from trainplan.costmodel.step import with_overhead


def least_seconds(costs: PlacementCosts, nodes: NodeLinks) -> float:
    """Step time no order of the nodes is below.

    Source: `step.placement.placed_seconds` grows with every part, so with each part at its
    least over all orders it is no more than that of any order.
    """
    reach = Reach.of(nodes)
    work = np.array([_least_work(costs, nodes, rank, reach) for rank in costs.ranks])
    ends = np.array([_least_ends(costs, rank, reach) for rank in costs.ranks])
    pair = np.array([rank.pair_seconds for rank in costs.ranks])
    last = max(_hardest(ends), costs.pipeline_seconds)
    steady = (costs.microbatches - 1 / costs.vpp) * (_hardest(work) - pair.max())
    more = work - pair[:, None]
    least = more.min(axis=1)
    fill = (least.sum() + (more - least[:, None]).min(axis=0).max()) / costs.vpp
    seconds = last + max(0.0, steady) + fill + _least_hops(costs, reach) + costs.update_seconds
    return float(with_overhead(costs.machine, np.array([seconds]))[0])


@dataclass(frozen=True, slots=True)
class Reach:
    """Links of every node, best first, and those that join groups of nodes."""

    best: FloatMatrix
    """Slowdown of the `k`-th best link of each node in column `k`; column 0 is 1."""
    joins: FloatMatrix
    """Slowdown at which each node is joined to `k` nodes, itself counted, in column `k`."""

    @classmethod
    def of(cls, nodes: NodeLinks) -> Reach:
        """Sort the links of every node.

        Source: slowdowns in rising order, the node itself left out, are those of its best link, its
        second best, and so on.
        """
        count = len(nodes.slowness)
        apart = np.where(np.eye(count, dtype=bool), np.inf, nodes.slowdown)
        best = np.concatenate([np.ones((count, 1)), np.sort(apart, axis=1)[:, :-1]], axis=1)
        return cls(best, _joins(apart))

    def slowdown(self, term: Term, rank: RankCosts) -> FloatColumn:
        """Least slowdown of a kind of traffic on a rank that has each node.

        Source: each place is linked to `degree` others or more, so a slowest link is no better than
        the node's best but `degree`; and its group needs links that join `size` nodes.
        """
        places = len(rank.places)
        if len(np.unique(term.pairs)) < places or places < 2:
            return np.ones(len(self.best))
        degree = int(np.unique(term.pairs, return_counts=True)[1].min())
        size = _smallest_group(term.pairs)
        return np.asarray(np.maximum(self.best[:, degree], self.joins[:, size]))


def _joins(apart: FloatMatrix) -> FloatMatrix:
    """Slowdown at which each node belongs to a group of so many nodes joined by their links.

    Source: Kruskal, On the shortest spanning subtree, Proc. AMS 7, 1956: the links of a shortest
    tree join groups in the order of any threshold.
    """
    count = len(apart)
    group, joins = np.arange(count), np.ones((count, count + 1))
    reached = np.ones(count, dtype=np.int64)
    for slowdown, one, other in _tree(apart):
        members = (group == group[one]) | (group == group[other])
        size = int(members.sum())
        for node in np.flatnonzero(members).tolist():
            joins[node, reached[node] + 1 : size + 1] = slowdown
        reached[members], group[members] = size, group[one]
    return joins


def _tree(apart: FloatMatrix) -> list[tuple[float, int, int]]:
    """Links of a shortest spanning tree, the best first.

    Source: Prim, Shortest connection networks, Bell System Technical Journal 36, 1957.
    """
    count = len(apart)
    near, source = apart[0].copy(), np.zeros(count, dtype=np.int64)
    inside = np.zeros(count, dtype=bool)
    inside[0] = True
    links = []
    for _ in range(count - 1):
        node = int(np.argmin(np.where(inside, np.inf, near)))
        links.append((float(near[node]), int(source[node]), node))
        inside[node] = True
        closer = apart[node] < near
        near, source = np.where(closer, apart[node], near), np.where(closer, node, source)
    return sorted(links)


def _smallest_group(pairs: Pairs) -> int:
    """Fewest places that pairs join.

    Source: labels spread along pairs until none does; then places have one label just where pairs
    join them, and the rarest label is the smallest group.
    """
    places, flat = np.unique(pairs, return_inverse=True)
    ends, label = flat.reshape(-1, 2), np.arange(len(places))
    while True:
        before = label.copy()
        least = label[ends].min(axis=1)
        np.minimum.at(label, ends[:, 0], least)
        np.minimum.at(label, ends[:, 1], least)
        if (label == before).all():
            return int(np.unique(label, return_counts=True)[1].min())


def _hardest(seconds: FloatMatrix) -> float:
    """Some rank has each node, and each rank has some.

    Source: some rank has each node and takes no less than the node's least over ranks; each rank
    has some node and takes no less than its least over nodes.
    """
    return float(max(seconds.min(axis=0).max(), seconds.min(axis=1).max()))


def _least_work(
    costs: PlacementCosts, nodes: NodeLinks, rank: RankCosts, reach: Reach
) -> FloatColumn:
    """Seconds of a micro batch on a pipeline rank that has each node.

    Source: a rank is as slow as its slowest node, which is no faster than the one asked for; every
    kind of traffic adds what it does at its least slowdown.
    """
    seconds: FloatColumn = rank.pair_seconds * nodes.slowness
    for term in rank.inside:
        seconds = seconds + costs.added(term.added_seconds, reach.slowdown(term, rank))
    return seconds


def _least_ends(costs: PlacementCosts, rank: RankCosts, reach: Reach) -> FloatColumn:
    """When a pipeline rank that has each node has sent its gradients.

    Source: passes end no sooner than with equal links, and the traffic behind them adds no less
    than at its least slowdown.
    """
    added = costs.added(rank.traffic.added_seconds, reach.slowdown(rank.traffic, rank))
    return rank.end_seconds + added


def _least_hops(costs: PlacementCosts, reach: Reach) -> float:
    """What slow links add to the slowest path: no less than on average.

    Source: derived; every node is an end of a hop, and a hop has two ends. A single path joins all.
    """
    crossing = costs.paths[costs.paths[:, :, 0] != costs.paths[:, :, 1]]
    if len(np.unique(crossing)) < len(reach.best):
        return 0.0
    each = costs.added(costs.hop_seconds, reach.best[:, 1])
    average = float(each.sum() / 2 / len(costs.paths))
    joined = reach.joins[:, _smallest_group(crossing)].max()
    return max(average, float(costs.added(costs.hop_seconds, joined)))

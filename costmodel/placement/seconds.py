"""Seconds of a step when its nodes have unlike links, for any order of the nodes.

The cost model prices a layout with equal links. Here every collective runs at the slowest link
between neighbours of its group, every message between stages at its own, every pipeline rank at
its slowest node.
"""

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel.columns import FloatColumn, FloatMatrix, IntMatrix
from trainplan.costmodel.comm import Pairs
from trainplan.costmodel.placement.costs import NodeLinks, PlacementCosts, RankCosts, Term
from trainplan.costmodel.step import with_overhead

Orders = IntMatrix
"""Shape (order, place): which node is at each place."""

NORM_ORDER = 6
"""Order of a norm that is near the largest of some numbers, and falls with any of them."""


def placed_seconds(costs: PlacementCosts, nodes: NodeLinks, orders: Orders) -> FloatColumn:
    """Step time of every order of the nodes.

    A slower pipeline rank delays the first micro batch once and, where it is the slowest, all the
    others: `pipeline + (m - 1 / vpp) (max pair' - max pair) + sum (pair' - pair) / vpp`. The
    slowest path of messages and the rank that has sent its gradients last add to that. Never less
    than with equal links.
    Source: derived; makespan `(m - 1 / vpp) max pair + sum pair / vpp` of 1F1B and interleaved
    1F1B, Narayanan et al., arXiv:2104.04473, section 2.2.
    """
    work, ends = _rank_seconds(costs, nodes, orders)
    pair = np.array([rank.pair_seconds for rank in costs.ranks])
    steady = (costs.microbatches - 1 / costs.vpp) * (work.max(axis=1) - pair.max())
    fill = (work - pair).sum(axis=1) / costs.vpp
    last = np.maximum(ends.max(axis=1), costs.pipeline_seconds)
    hops = path_seconds(costs, nodes, orders).max(axis=1, initial=0.0)
    step = last + steady + fill + hops + costs.update_seconds
    return with_overhead(costs.machine, step)


def slow_link_seconds(costs: PlacementCosts, nodes: NodeLinks, orders: Orders) -> FloatColumn:
    """Seconds all slow links add, the slowest most: falls where `placed_seconds` is flat.

    Source: derived; the norm of order NORM_ORDER tells orders apart whose slowest links are alike.
    """
    total: FloatColumn = path_seconds(costs, nodes, orders).sum(axis=1)
    for rank in costs.ranks:
        for term, often in _terms(costs, rank):
            slow = _between(nodes.slowdown, orders, term.pairs)
            added = often * costs.added(term.added_seconds, slow)
            total += (added**NORM_ORDER).sum(axis=1) ** (1 / NORM_ORDER)
        total += (
            costs.microbatches
            * rank.pair_seconds
            * nodes.slowness[orders[:, rank.places]].sum(axis=1)
        )
    return total


def path_seconds(costs: PlacementCosts, nodes: NodeLinks, orders: Orders) -> FloatMatrix:
    """What slow links add to the messages of every pipeline; shape (order, path).

    Source: derived; messages of a step pass the hops of a path one after the other.
    """
    one, other = costs.paths[:, :, 0], costs.paths[:, :, 1]
    slow = nodes.slowdown[orders[:, one], orders[:, other]]
    return np.asarray(costs.added(costs.hop_seconds, slow).sum(axis=2))


def _terms(costs: PlacementCosts, rank: RankCosts) -> Iterator[tuple[Term, float]]:
    """Traffic of a rank, and how often a step has it."""
    yield from ((term, float(costs.microbatches)) for term in rank.inside)
    yield rank.traffic, 1.0


def _rank_seconds(
    costs: PlacementCosts, nodes: NodeLinks, orders: Orders
) -> tuple[FloatMatrix, FloatMatrix]:
    """Seconds of a micro batch and of the end of the step; shape (order, pipeline rank).

    Source: a rank is as slow as its slowest node, and each kind of traffic adds what its slowest
    link does: as `_slowest`.
    """
    work, ends = np.zeros((2, len(orders), len(costs.ranks)))
    for number, rank in enumerate(costs.ranks):
        slowness = nodes.slowness[orders[:, rank.places]].max(axis=1)
        work[:, number] = rank.pair_seconds * slowness
        for term in rank.inside:
            work[:, number] += _slowest(costs, nodes, orders, term)
        ends[:, number] = rank.end_seconds + _slowest(costs, nodes, orders, rank.traffic)
    return work, ends


def _slowest(costs: PlacementCosts, nodes: NodeLinks, orders: Orders, term: Term) -> FloatColumn:
    """Seconds a term adds.

    Source: a collective ends when its slowest pair has sent, so the largest slowdown among its
    pairs decides what is added.
    """
    slow = _between(nodes.slowdown, orders, term.pairs).max(axis=1, initial=1.0)
    return costs.added(term.added_seconds, slow)


def _between(slowdown: FloatMatrix, orders: Orders, pairs: Pairs) -> FloatMatrix:
    """Slowdown between the nodes at both places of each pair. Source: `NodeLinks`."""
    return np.asarray(slowdown[orders[:, pairs[:, 0]], orders[:, pairs[:, 1]]])

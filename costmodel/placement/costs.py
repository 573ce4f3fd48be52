"""What the order of unlike nodes decides about the step time of one layout.

What a kind of traffic takes on a slow link is what the cost model says of a cluster whose links
are all that slow, so with equal links nothing changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.candidates import Candidates, Context, context_of
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.comm import Pairs, Paths, Places, joined
from trainplan.costmodel.hardware import LinkSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.shards import context_ways
from trainplan.costmodel.step import Priced, price, simulate, with_overhead

FloatMatrix = NDArray[np.float64]

MOST_KNOTS = 12
"""Slowdowns at which traffic is priced; what is between two is interpolated.

Source: derived; seconds of a collective are linear in the slowdown but for a few kinks."""


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """What was measured of nodes, relative to the best of them."""

    slowdown: FloatMatrix
    """Bandwidth of the fastest link over that between two nodes; 1 on the diagonal."""
    slowness: FloatColumn
    """Speed of a healthy node over that of each."""


@dataclass(frozen=True, slots=True)
class Term:
    """Seconds some pairs of places add together: their slowest link decides."""

    pairs: Pairs
    added_seconds: FloatColumn
    """At every knot."""


@dataclass(frozen=True, slots=True)
class RankCosts:
    """One pipeline rank with equal links, and what slower ones add."""

    pair_seconds: float
    """Forward and backward pass of one micro batch."""
    end_seconds: float
    """When its last pass ends and its traffic at the end of the step has passed."""
    inside: tuple[Term, ...]
    """Traffic in the passes of one micro batch."""
    traffic: Term
    """Gradients and parameters at the end of the step."""
    places: IntColumn


@dataclass(frozen=True, slots=True)
class PlacementCosts:
    """All that the order of the nodes decides about the step time of one layout."""

    machine: Machine
    knots: FloatColumn
    """Slowdowns, growing from 1."""
    ranks: tuple[RankCosts, ...]
    paths: Paths
    hop_seconds: FloatColumn
    """What a slower link adds to a step on one hop of a path; at every knot."""
    pipeline_seconds: float
    """Makespan with equal links."""
    update_seconds: float
    microbatches: int
    vpp: int

    @property
    def step_seconds(self) -> float:
        """With equal links: the estimate's step time.

        Source: the pipeline or the rank that ends last, whichever is later, then the update; and
        the overhead that every step has.
        """
        ends = max(self.pipeline_seconds, *(rank.end_seconds for rank in self.ranks))
        seconds = np.array([ends + self.update_seconds])
        return float(with_overhead(self.machine, seconds)[0])

    def added(self, seconds: FloatColumn, slowdown: FloatMatrix) -> FloatMatrix:
        """Seconds at the knots, at other slowdowns.

        Source: linear between knots: a transfer takes a start and its bytes over the bandwidth,
        which is linear in the slowdown.
        """
        return np.asarray(np.interp(slowdown, self.knots, seconds))


def nodes_of(links: LinkSpec) -> NodeLinks:
    """Slowdowns of measured links; the fastest link is what the cost model takes all to be."""
    rate = np.array(links.gb_per_s, dtype=np.float64)
    rate = np.minimum(rate, rate.T)
    np.fill_diagonal(rate, 0.0)
    slowdown = np.divide(rate.max(), rate, out=np.ones_like(rate), where=rate > 0)
    speed = np.array(links.node_speed or (1.0,) * len(links.nodes))
    return NodeLinks(slowdown, speed.max() / speed)


def placement_costs(job: Job, machine: Machine, layout: Layout, nodes: NodeLinks) -> PlacementCosts:
    """Price one layout at every slowdown its links have."""
    places = Places(layout, machine.gpus_per_node)
    knots = _knots(nodes)
    candidates = context_of(job, machine).with_table(LayoutTable.of([layout]))
    priced = [_at(candidates, slowdown) for slowdown in knots.tolist()]
    step = simulate(priced[0]).row(0)
    ends = _rank_ends(candidates, step.with_messages)
    inside, traffic = _inside_seconds(priced), _growing([p.traffic[:, 0] for p in priced])
    pairs = priced[0].work.pair[:, 0]
    kinds = [_kinds(candidates, places, rank) for rank in range(layout.pp)]
    ranks = tuple(
        RankCosts(
            pair_seconds=float(pairs[rank]),
            end_seconds=float(ends[rank] + priced[0].traffic[rank, 0]),
            inside=tuple(
                Term(kind, seconds)
                for kind, seconds in zip(kinds[rank], inside[:, :, rank], strict=True)
                if len(kind) and seconds.any()
            ),
            traffic=Term(kinds[rank][-1], traffic[:, rank]),
            places=places.inside(rank)[:, 0],
        )
        for rank in range(layout.pp)
    )
    schedule = SCHEDULES[layout.schedule]
    paths = places.paths(closed=layout.vpp > 1 and schedule.placement == "loop")
    return PlacementCosts(
        machine=machine,
        knots=knots,
        ranks=ranks,
        paths=paths,
        hop_seconds=_hop_seconds(priced, step.with_messages - step.instant, paths),
        pipeline_seconds=step.with_messages,
        update_seconds=float(priced[0].update[0]),
        microbatches=int(priced[0].microbatches[0]),
        vpp=layout.vpp,
    )


def _knots(nodes: NodeLinks) -> FloatColumn:
    """All slowdowns, or some evenly spread in their logarithm.

    Source: few slowdowns are all knots; of many, knots that grow by equal factors leave the same
    relative distance between any two.
    """
    found = np.unique(np.append(nodes.slowdown, 1.0))
    if len(found) <= MOST_KNOTS:
        return found
    return np.asarray(np.geomspace(1.0, found[-1], MOST_KNOTS))


def _at(candidates: Candidates, slowdown: float) -> Priced:
    """The layout on a cluster whose links are all that slow."""
    machine = candidates.machine
    slower = replace(machine, nic_bytes_per_second=machine.nic_bytes_per_second / slowdown)
    return price(replace(candidates, machine=slower), merged=False)


def _rank_ends(candidates: Candidates, makespan: float) -> FloatColumn:
    """When each pipeline rank ends its last pass.

    Source: derived; traffic of one rank alone that lasts as long as the pipeline outlasts it by
    just that.
    """
    pp = int(candidates.table.pp[0])
    priced = price(candidates.take(np.zeros(pp, dtype=np.int64)), merged=False)
    alone = replace(priced, traffic=np.eye(pp) * makespan)
    return simulate(alone).dp_comm


def _kinds(on: Context, places: Places, rank: int) -> tuple[Pairs, ...]:
    """Pairs of each kind of traffic: tensor, context, expert parallel, sharded states."""
    layout = places.layout
    heads, _ = context_ways(
        on.job.model, on.traits.communication.context_exchange, LayoutTable.of([layout])
    )
    context = places.everyone if heads.any() else places.ring
    experts = places.everyone(rank, layout.ep, layout.etp), places.ring(rank, layout.etp, 1)
    outside, experts_stride = layout.tp * layout.gtp, layout.etp * layout.ep
    ways = [(layout.dp * layout.cp // layout.gtp, outside)]
    if on.job.model.moe:
        inner = experts_stride * layout.egtp
        ways.append((places.stage_ranks // inner, inner))
    return (
        places.ring(rank, layout.tp, 1),
        _nested(places, rank) if layout.cp_heads > 1 else context(rank, layout.cp, outside),
        joined([*experts]),
        joined(
            [
                places.ring(rank, layout.gtp, layout.tp),
                places.ring(rank, layout.egtp, experts_stride),
                *(pairs for way in ways for pairs in _states(places, rank, *way)),
            ]
        ),
    )


def _nested(places: Places, rank: int) -> Pairs:
    """Context ranks that exchange heads, and the rings of those at their distance.

    Source: as `costmodel.blocks.attention.context`.
    """
    inner, tp = places.layout.cp_heads, places.layout.tp * places.layout.gtp
    ring = places.ring(rank, places.layout.cp // inner, tp * inner)
    return joined([places.everyone(rank, inner, tp), ring])


def _states(places: Places, rank: int, size: int, stride: int) -> Iterator[Pairs]:
    """Rings that shard states, and those that keep replicas of a shard equal.

    Source: as `costmodel.shard_groups.groups_of`.
    """
    layout = places.layout
    copies = {layout.dp_replicate if layout.zero_stage else 1}
    if layout.shard:
        copies = {layout.dp * layout.cp // ranks for _, ranks in layout.shard}
    for shards in sorted(max(1, size // one) for one in copies):
        yield places.ring(rank, shards, stride)
        yield places.ring(rank, size // shards, stride * shards)


def _inside_seconds(priced: Sequence[Priced]) -> FloatMatrix:
    """What slower links add to a micro batch; shape (kind of traffic, knot, pipeline rank).

    The growth of the whole pass is shared out as the kinds grow, so what recomputation repeats
    is in it.

    Source: the growth of a pass is divided among kinds of traffic in the ratio of their own growth,
    so that the parts add up to the whole.
    """
    pairs = np.array([p.work.pair[:, 0] for p in priced])
    kinds = np.array([_communication(p) for p in priced]).transpose(1, 0, 2)
    more = np.maximum(0.0, kinds - kinds[:, :1])
    whole = more.sum(axis=0)
    share = np.divide(more, whole, out=np.zeros_like(more), where=whole > 0)
    return np.asarray(np.maximum.accumulate(share * (pairs - pairs[0]), axis=1))


def _communication(priced: Priced) -> FloatMatrix:
    """Seconds of tensor, context, expert and sharded traffic in one micro batch on each rank.

    Source: as the terms of `costmodel.step.simulate`.
    """
    key, counts = int(priced.key[0]), [count[:, 0] for count in priced.ranks.by_kind]
    total = np.zeros((4, len(counts[0])))
    kinds = zip(counts, priced.blocks.by_kind, priced.seconds.by_kind, strict=True)
    for count, block, layer in kinds:
        both = block.forward + block.backward
        parts = (both.tp_comm[key], both.cp_comm[key], both.ep_comm[key], layer.traffic[0])
        total += np.array(parts)[:, None] * count
    return total


def _growing(values: Sequence[FloatColumn]) -> FloatMatrix:
    """What is added to the first of the values; never falls from one to the next.

    Source: a slower link never makes a step faster, so where a value falls the largest one so far
    is kept.
    """
    rows = np.array(values)
    return np.asarray(np.maximum.accumulate(rows - rows[0], axis=0))


def _hop_seconds(priced: Sequence[Priced], messages: float, paths: Paths) -> FloatColumn:
    """What a slower link adds to a step on one hop that crosses nodes, at every knot.

    What messages add with equal links is shared evenly by the hops and grows with the message.
    Source: seconds that messages add over one message are the messages a step waits for; over the
    hops that cross nodes, those of one hop, each longer by message - message[0].
    """
    message = np.array([p.seconds.p2p[0] for p in priced])
    crossing = int((paths[:, :, 0] != paths[:, :, 1]).sum(axis=1).max(initial=0))
    if not crossing or not message[0]:
        return np.zeros(len(message))
    often = messages / message[0] / crossing
    return np.asarray(np.maximum.accumulate(often * (message - message[0])))

"""Which links a group of ranks uses, and which nodes the ranks of a layout talk to.

Ranks are numbered as Megatron Core does by default, inner to outer: tp, cp, dp (ep inside it), pp.
A group of `size` ranks at distance `stride` therefore has `domain / stride` members in one
scale-up domain, or fewer where its ranks do not fill whole domains: of tensor groups of 4 on nodes
of 6, every third has two members on each of two nodes, and all wait for it. Racks give a job equal
segments of nodes where they can (`NodeGroup.domain_gpus`), so groups fill them as they fill nodes.
Of a placement, place `p` holds the ranks of one node; a ring links neighbours in rank order and
closes, as NCCL builds rings over nodes in the order of their ranks.
Source: Megatron-LM `parallel_state.py`, order "tp-cp-ep-dp-pp".
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.comm.collisions import tier_slowdowns
from trainplan.costmodel.comm.rails import off_rail
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import is_torn
from trainplan.costmodel.machine import Machine, stride_column


@dataclass(frozen=True, slots=True)
class Group:
    """One communicator per row."""

    size: IntColumn
    inside: IntColumn
    """Members in one scale-up domain; of the group that is cut worst, on its emptiest one."""
    stride: IntColumn
    """Distance of neighbouring members."""
    nodes: FloatColumn
    """Domains it spans."""
    nic_bytes_per_second: FloatColumn
    """Sustained scale-out bandwidth of all members in one domain together, of rings and messages:
    with what they send to other rails."""
    exchange_bytes_per_second: FloatColumn
    """As `nic_bytes_per_second`, of all-to-alls on their own rails."""
    forward_seconds_per_byte: FloatColumn
    """Of each byte that a rank sends to other domains in an all-to-all: on the links of its own,
    to the GPU on the rail of the receiver."""
    fabric_seconds: FloatColumn
    """Extra latency of the switch tiers it crosses."""


def group(machine: Machine, size: IntColumn, stride: IntColumn) -> Group:
    """Links of groups of `size` ranks at distance `stride`.

    Every member drives its own rail, so a group with several members in a domain uses as many NICs.
    Source: n members of a domain send by n rails, so the group has n times the bandwidth of one
    NIC; SimAI's nic_ratio tables of NCCL's rail-aligned rings measure the same. What is for
    another rail goes over a link first, then by the NIC: 1 / b + f / b_link seconds a byte, after
    arXiv:2307.12169.
    """
    inside, nodes = _spread(machine, size, stride)
    slowdown = exchanged = np.ones(len(size))
    latency = np.zeros(len(size))
    for tier in machine.fabric:
        leaves = size * stride > tier.reach_gpus
        ring, every = tier_slowdowns(tier, size, stride, inside, machine.num_gpus)
        slowdown = np.where(leaves, np.maximum(slowdown, ring), slowdown)
        exchanged = np.where(leaves, np.maximum(exchanged, every), exchanged)
        latency = latency + leaves * tier.latency_us * 1e-6
    sending = machine.nic_bytes_per_second * machine.constants.nic_efficiency * inside
    nic, exchange, forward = sending / slowdown, sending / exchanged, np.zeros(len(size))
    if machine.rails:
        places = (machine.domain_gpus, machine.rails, machine.num_gpus)
        ring, others = off_rail(size, stride, *places)
        link = link_speed(machine, stride)
        nic, forward = nic / (1 + ring * nic / inside / link), others / link
    return Group(size, inside, stride, nodes, nic, exchange, forward, latency)


def _spread(machine: Machine, size: IntColumn, stride: IntColumn) -> tuple[IntColumn, FloatColumn]:
    """Members in one domain, and domains.

    Source: derived; groups start at multiples of `size * stride` ranks and domains at multiples of
    their GPUs, so their borders are a multiple of the greatest common divisor apart.
    """
    domain, ranks = machine.domain_gpus, size * stride
    inside = np.minimum(np.maximum(domain // stride, 1), size)
    whole = np.minimum(np.maximum(ranks / domain, 1), size)
    torn = is_torn(ranks, domain, machine.num_gpus)
    if not torn.any():
        return inside, whole
    piece = np.gcd(ranks, domain)
    spanned = np.minimum(size, 1 + -(-(ranks - piece) // domain))
    cut = np.minimum(np.maximum(piece // stride, 1), inside)
    return np.where(torn, cut, inside), np.where(torn, spanned, whole)


def link_speed(machine: Machine, stride: IntColumn) -> FloatColumn:
    """Bytes per second of one message between two GPUs of a domain at distance `stride`.

    Source: `Machine.link_bytes_per_second`, one column for each of STRIDES as measured or fitted.
    """
    return machine.link_bytes_per_second[stride_column(stride)]


def pipeline_neighbour(machine: Machine, pp: IntColumn, stride: IntColumn) -> FloatColumn:
    """Share of the hops between neighbouring pipeline ranks that leave a scale-up domain.

    Source: derived; with `stride` ranks per stage, one hop in `domain / stride` crosses.
    """
    crossing = np.minimum(stride / machine.domain_gpus, 1.0)
    return np.where(pp * stride > machine.domain_gpus, crossing, 0.0)


Pairs = NDArray[np.int64]
"""Shape (pair, 2): places whose nodes exchange messages, the smaller first."""
Paths = NDArray[np.int64]
"""Shape (path, hop, 2): places a pipeline passes; both are equal where a hop stays in a node."""


@dataclass(frozen=True, slots=True)
class Places:
    """How ranks lie on nodes."""

    layout: Layout
    gpus_per_node: int

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline rank."""
        return self.layout.tp * self.layout.cp * self.layout.dp

    @property
    def count(self) -> int:
        """Places, one for each node."""
        return -(-self.layout.world_size // self.gpus_per_node)

    def ring(self, pipeline_rank: int, size: int, stride: int) -> Pairs:
        """Neighbours on the rings of all groups of `size` ranks at distance `stride`."""
        members = self._members(pipeline_rank, size, stride)
        return _crossing(members, np.roll(members, -1, axis=1))

    def everyone(self, pipeline_rank: int, size: int, stride: int) -> Pairs:
        """All pairs inside all groups of `size` ranks at distance `stride`."""
        members = self._members(pipeline_rank, size, stride)
        shifts = [np.roll(members, -shift, axis=1) for shift in range(1, size // 2 + 1)]
        return joined([_crossing(members, other) for other in shifts])

    def inside(self, pipeline_rank: int) -> Pairs:
        """The places of a pipeline rank, each paired with itself."""
        places = np.unique(self._ranks(pipeline_rank) // self.gpus_per_node)
        return np.stack([places, places], axis=1)

    def paths(self, *, closed: bool) -> Paths:
        """The places every pipeline passes, each path once; `closed`: the last sends to the first.

        Ranks of one place in their stage form one pipeline.
        """
        layout = self.layout
        ranks = np.arange(layout.world_size).reshape(layout.pp, self.stage_ranks)
        places = ranks.T // self.gpus_per_node
        nexts = np.roll(places, -1, axis=1)
        hops = np.stack([np.minimum(places, nexts), np.maximum(places, nexts)], axis=2)
        return np.unique(hops if closed else hops[:, :-1], axis=0)

    def _ranks(self, pipeline_rank: int) -> IntColumn:
        return np.arange(self.stage_ranks) + pipeline_rank * self.stage_ranks

    def _members(self, pipeline_rank: int, size: int, stride: int) -> Pairs:
        """Places of the members of every group; shape (group, member)."""
        places = self._ranks(pipeline_rank) // self.gpus_per_node
        groups = places.reshape(-1, size, stride).transpose(0, 2, 1).reshape(-1, size)
        return np.unique(groups, axis=0)


def joined(parts: list[Pairs]) -> Pairs:
    """Every pair of all parts once."""
    return np.unique(np.concatenate([np.zeros((0, 2), dtype=np.int64), *parts]), axis=0)


def _crossing(one: Pairs, other: Pairs) -> Pairs:
    """Pairs of unlike places, each once."""
    pairs = np.stack([np.minimum(one, other).ravel(), np.maximum(one, other).ravel()], axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)

"""Seconds of one collective or message, exposed or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.comm.topology import Group
from trainplan.costmodel.documents import Constants
from trainplan.costmodel.machine import GROUP_SIZES, OPERATIONS, Machine, stride_column
from trainplan.costmodel.residuals import Residuals

RINGS = ("all_gather", "reduce_scatter")
"""Collectives that go round a ring of all ranks; the others go up and down a tree of the nodes.

Source: NVIDIA/nccl v2.19.3 `src/graph/tuning.cc`, ncclTopoTuneModel: across nodes these two have no
tree.
"""
HOP_SECONDS, NODE_HOP_SECONDS = 3.4e-6, 14e-6
"""One hop of a ring, over the links of a node and between two nodes.

Source: NVIDIA/nccl v2.19.3 `src/graph/tuning.cc`, hwLat of Ring and Simple: NVLINK, NET.
"""


@dataclass(frozen=True, slots=True)
class Rate:
    """What one collective costs on given groups, whatever its size; one row per group."""

    start_seconds: FloatColumn
    seconds_per_byte: FloatColumn
    seconds_per_root_byte: FloatColumn

    def take(self, rows: IntColumn) -> Rate:
        """The rows picked by an index."""
        return Rate(
            self.start_seconds[rows], self.seconds_per_byte[rows], self.seconds_per_root_byte[rows]
        )

    def of_part(self, parts: FloatColumn) -> Rate:
        """The price for a whole tensor of which one of `parts` equal parts is sent."""
        return Rate(
            self.start_seconds,
            self.seconds_per_byte / parts,
            self.seconds_per_root_byte / np.sqrt(parts),
        )

    def in_calls(self, calls: FloatColumn) -> Rate:
        """The price for a whole tensor that goes in so many equal parts, one after the other."""
        return Rate(
            self.start_seconds * calls,
            self.seconds_per_byte,
            self.seconds_per_root_byte * np.sqrt(calls),
        )

    def overlapped_with(self, other: Rate) -> Rate:
        """Two collectives on other links, of many tensors: both start, the slower one counts."""
        return Rate(
            self.start_seconds + other.start_seconds,
            np.maximum(self.seconds_per_byte, other.seconds_per_byte),
            np.maximum(self.seconds_per_root_byte, other.seconds_per_root_byte),
        )

    def seconds(self, tensor_bytes: FloatColumn) -> FloatColumn:
        """Seconds for a full tensor of `tensor_bytes`; nothing to send takes no time.

        Source: alpha + B / bandwidth + c sqrt(B), Hockney model with a square-root term for the
        protocol change of NCCL.
        """
        seconds = (tensor_bytes > 0) * self.start_seconds + tensor_bytes * self.seconds_per_byte
        if self.seconds_per_root_byte.any():
            seconds += np.sqrt(tensor_bytes) * self.seconds_per_root_byte
        return seconds


def only(paid: BoolColumn, rate: Rate) -> Rate:
    """The rate where `paid` holds, free elsewhere."""
    return Rate(
        paid * rate.start_seconds, paid * rate.seconds_per_byte, paid * rate.seconds_per_root_byte
    )


def choose(first: BoolColumn, one: Rate, other: Rate) -> Rate:
    """`one` where `first` holds, else `other`."""
    return Rate(
        np.where(first, one.start_seconds, other.start_seconds),
        np.where(first, one.seconds_per_byte, other.seconds_per_byte),
        np.where(first, one.seconds_per_root_byte, other.seconds_per_root_byte),
    )


def bus_factor(operation: str, size: IntColumn) -> FloatColumn:
    """Bytes on the busiest link over bytes of the full tensor, ring or equivalent.

    Source: nccl-tests doc/PERFORMANCE.md: all-reduce 2 (n - 1) / n, a message 1, the others
    (n - 1) / n.
    """
    if operation == "p2p":
        return np.ones_like(size, dtype=np.float64)
    rounds = 2.0 if operation == "all_reduce" else 1.0
    return rounds * (size - 1) / size


def hops_seconds(
    constants: Constants, operation: str, size: IntColumn, nodes: FloatColumn
) -> FloatColumn:
    """Latency of the way of a collective across nodes: a ring of all ranks, or a tree of the nodes.

    Source: as RINGS, latencies of ncclTopoTuneModel: n - 1 hops of a ring, of which one fewer than
    the nodes are between two of them.
    """
    if operation in RINGS:
        return HOP_SECONDS * (size - nodes) + NODE_HOP_SECONDS * (nodes - 1)
    return constants.inter_node_alpha_per_doubling * np.log2(np.maximum(2.0, nodes))


def fit_column(group: Group) -> IntColumn:
    """Column of the machine's fits (2, 4 or 8 ranks, by stride) that stands for each group."""
    size = (group.inside > 2).astype(np.int64) + (group.inside > 4)
    return np.asarray(size + len(GROUP_SIZES) * stride_column(group.stride))


def across_seconds_per_byte(operation: str, group: Group, bus: FloatColumn) -> FloatColumn:
    """Seconds for each byte of the full tensor in groups that span domains.

    A ring passes a tensor on by all NICs of the group's members in a domain together. In an
    all-to-all, whose tensor is that of one rank, every rank sends its own part for all ranks of
    other domains by its one NIC, beside what stays inside; what is for another rail of a rail-only
    network before that by a link.
    Source: derived; NCCL v2.19.3 `src/enqueue.cc`, an all-to-all is a send to every rank, and
    nccl-tests doc/PERFORMANCE.md for the tensors; DeepSeek-V3, arXiv:2412.19437, section 3.2.2.
    """
    nic = group.nic_bytes_per_second
    if operation == "alltoall":
        inside, outside = group.inside - 1, group.size - group.inside
        sent = outside * group.inside / group.exchange_bytes_per_second
        sent = sent + outside * group.forward_seconds_per_byte
        return np.asarray(np.maximum(inside / bus, sent) / group.size)
    wire = np.where(group.inside > 1, np.minimum(bus, nic), nic)
    return bus_factor(operation, group.size) / wire


def nic_share(operation: str, size: IntColumn, inside: IntColumn) -> FloatColumn:
    """Bytes that one NIC sends for each byte of the full tensor, in groups that span domains.

    Source: as `across_seconds_per_byte`.
    """
    if operation == "alltoall":
        return np.asarray((size - inside) / size)
    return bus_factor(operation, size) / inside


def start_growth(size: IntColumn | FloatColumn) -> FloatColumn:
    """How much later a collective of so many ranks starts than one of 8.

    Source: fits of 2 to 8 ranks are those of a node; a sixteenth more for each further one.
    """
    return np.asarray(1 + np.maximum(0, size - 8) / 16)


def collective_rate(machine: Machine, operation: str, group: Group) -> Rate:
    """Price of a collective in each group; one rank alone pays nothing.

    Source: fits of the machine inside one domain; across nodes `across_seconds_per_byte` and
    `hops_seconds`.
    """
    row, column = OPERATIONS.index(operation), fit_column(group)
    bus = machine.bus_bytes_per_second[row][column]
    many, several = group.nodes > 1, group.size > 1
    start = machine.alpha_seconds[row][column] * start_growth(group.size)
    per_byte = bus_factor(operation, group.size) / bus
    if many.any():
        across = (
            machine.constants.inter_node_alpha
            + hops_seconds(machine.constants, operation, group.size, group.nodes)
            + group.fabric_seconds
        )
        start = np.where(many, across, start)
        per_byte = np.where(many, across_seconds_per_byte(operation, group, bus), per_byte)
    return Rate(
        start_seconds=np.where(several, start, 0.0),
        seconds_per_byte=per_byte,
        seconds_per_root_byte=(several & ~many) * machine.sqrt_coefficient[row][column],
    )


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective in each group, for tensors of any size."""

    rate: Rate
    near: tuple[tuple[BoolColumn, Residuals], ...]
    """Groups inside one domain that were measured, and what sizes near measured ones took."""

    def seconds(self, tensor_bytes: FloatColumn) -> FloatColumn:
        """Seconds over the full tensor of `tensor_bytes` in each group.

        Source: `Rate`; `Residuals`.
        """
        seconds = self.rate.seconds(tensor_bytes)
        for groups, residuals in self.near:
            seconds = np.where(groups, seconds * residuals.factor(tensor_bytes), seconds)
        return seconds


def collective(machine: Machine, operation: str, group: Group) -> Collective:
    """Price of a collective in each group, whatever its size.

    Inside one domain, sizes near measured ones take as long as those did.
    Source: as `collective_rate`.
    """
    row, column = OPERATIONS.index(operation), fit_column(group)
    near = tuple(
        ((column == measured_column) & (group.nodes == 1), residuals)
        for (measured_row, measured_column), residuals in machine.collective_residuals.items()
        if measured_row == row and measured_column in column
    )
    return Collective(collective_rate(machine, operation, group), near)


def collective_seconds(
    machine: Machine, operation: str, tensor_bytes: FloatColumn, group: Group
) -> FloatColumn:
    """Seconds of a collective over the full tensor of `tensor_bytes` in each group.

    Source: as `collective`.
    """
    return collective(machine, operation, group).seconds(tensor_bytes)


def message_seconds(
    machine: Machine,
    message_bytes: FloatColumn,
    crossing: FloatColumn,
    link: FloatColumn,
    nic: FloatColumn,
) -> FloatColumn:
    """Seconds of one point-to-point message; `crossing` is the share that leaves the domain.

    Source: Hockney, Parallel Computing 20, 1994, start and bytes over bandwidth; inside the domain
    one link, outside one NIC.
    """
    seconds: FloatColumn = machine.constants.p2p_alpha + message_bytes * (
        (1 - crossing) / link + crossing / nic
    )
    return seconds

"""A cluster as it is stated: node groups, their hosts and network cards, links between nodes."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.hardware.gpu import CPU, GpuSpec
from trainplan.costmodel.hardware.switches import SwitchSpec
from trainplan.costmodel.spec import Amount, AmountOrZero, Spec

MOST_LINKED_NODES = 1024
"""A matrix of more nodes does not fit in a configuration file."""

NODE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"
NodeName = Annotated[str, Field(pattern=NODE_NAME)]
"""A host name: letters, digits, dots, hyphens and underscores."""


class LinkSpec(Spec):
    """Bandwidth between every two nodes, as measured.

    The fastest link counts as the NICs of the nodes; the others are slower in proportion.
    """

    nodes: tuple[NodeName, ...] = Field(min_length=1, max_length=MOST_LINKED_NODES)
    """Host names, in the order they are given to the job today."""
    gb_per_s: tuple[tuple[AmountOrZero, ...], ...]
    """GB/s from the node of the row to the node of the column; the diagonal is not read, and of
    both directions the slower counts."""
    node_speed: tuple[Amount, ...] | None = None
    """Speed of each node's GPUs over that of the others, 1 for a healthy node; null: all equal."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        count = len(self.nodes)
        if len(set(self.nodes)) != count:
            twice = sorted({name for name in self.nodes if self.nodes.count(name) > 1})
            raise ValueError(f"nodes names {', '.join(twice)} twice: give every node once")
        if len(self.gb_per_s) != count or any(len(row) != count for row in self.gb_per_s):
            raise ValueError(f"gb_per_s must have {count} rows of {count} numbers, one per node")
        for i, row in enumerate(self.gb_per_s):
            if row.count(0) > (row[i] == 0):
                dead = next(self.nodes[j] for j, rate in enumerate(row) if rate == 0 and i != j)
                raise ValueError(
                    f"gb_per_s from {self.nodes[i]} to {dead} is 0: give a number above 0, or "
                    "leave a node that cannot be reached out of the cluster"
                )
        if self.node_speed is not None and len(self.node_speed) != count:
            raise ValueError(f"node_speed must have {count} numbers, one per node")
        if self.node_speed is not None and max(self.node_speed) > 1:
            raise ValueError("node_speed is at most 1, the speed of a healthy node")
        return self


class Placement(Spec):
    """Which node holds which ranks, chosen on measured links."""

    nodes: tuple[NodeName, ...]
    """Names in rank order: the first holds the lowest ranks."""
    step_time_s: float
    """In this order; with all links as fast as the fastest it is that of the estimate."""
    lower_bound_s: float
    """No order of the nodes has a smaller step time."""
    gap_fraction: float
    """(step time - lower bound) / step time."""
    identity_step_time_s: float
    """In the order of the cluster file."""

    @property
    def gain_fraction(self) -> float:
        """Step time saved over the order of the cluster file.

        Source: seconds saved over the seconds of the old order: (old - new) / old = 1 - new / old.
        """
        return 1 - self.step_time_s / self.identity_step_time_s


LEAST_GB_PER_S = 1e-6
"""Slower copies are a typing slip, and their seconds would be no numbers."""


class DriveSpec(Spec):
    """Drives of one node that a training may write to; figures are of each drive."""

    count: PositiveInt = Field(default=1, le=1 << 10)
    """Drives."""
    tb: Amount
    """Space in TB of 10^12 bytes."""
    read_gb_per_s: float | None = Field(default=None, ge=LEAST_GB_PER_S, le=1e12)
    """Sequential GB/s that each sustains; both ways or neither."""
    write_gb_per_s: float | None = Field(default=None, ge=LEAST_GB_PER_S, le=1e12)
    """Sequential GB/s that it sustains; null: not known, and nothing is kept there."""
    tb_written: Amount | None = None
    """TB that may be written in its life, as its maker warrants; null: not known."""

    @model_validator(mode="after")
    def _both_ways(self) -> Self:
        if (self.read_gb_per_s is None) != (self.write_gb_per_s is None):
            raise ValueError("read_gb_per_s and write_gb_per_s go together: give both or neither")
        return self


class HostSpec(Spec):
    """The host of one node. What is left out is that of `like`, else not known."""

    like: str | None = None
    """A host of the catalog, for instance `dgx-h100`."""
    memory_gib: Amount | None = None
    """Memory that the training may use; null: not known, so not checked."""
    memory_gb_per_s: float | None = Field(default=None, ge=LEAST_GB_PER_S, le=1e12)
    """Memory bandwidth of all processors together; null: no limit but the GPUs' own links."""
    adam_params_per_s: float | None = Field(default=None, ge=1.0, le=1e18)
    """Parameters that all processors update in a second; null: as published."""
    gpus_per_switch: PositiveInt | None = Field(default=None, le=1 << 10)
    """GPUs that share one link to the processors; null or 1: each has its own."""
    launch_factor: Amount | None = None
    """Launch time of its processors over that of the usual x86 server; null: the same."""
    drives: DriveSpec | None = None
    """Null: none that may be written to."""


MOST_NODES = 1 << 20
MOST_GPUS_PER_NODE = 1 << 10
MOST_GPUS = 1 << 20
"""Larger clusters are a typing slip, and the search would list their divisors for hours."""
DIGITS = 9
"""Digits of a count that are read; a longer one is too large anyway."""


Transport = Literal["infiniband", "roce", "efa", "tcp", "slingshot"]
"""What carries messages between nodes."""
POSTED_BY_HOST = frozenset(("efa", "tcp", "slingshot"))
"""Transports whose queues no GPU reaches. Source: NVIDIA/nvshmem, `transport/ibgda` is of mlx5
alone; `transport/libfabric`, a proxy for EFA and Slingshot."""


class NicSpec(Spec):
    """Network adapters of one node; each is one rail."""

    per_node: PositiveInt = Field(le=MOST_GPUS_PER_NODE)
    """Adapters of a node."""
    gb_per_s: Amount
    """Datasheet GB/s of one adapter in one direction (400 Gb/s = 50)."""
    transport: Transport | None = None
    """Null: not stated; priced as InfiniBand."""

    @property
    def by_proxies(self) -> bool:
        """Does the host post what GPUs send to other nodes?"""
        return self.transport in POSTED_BY_HOST


Network = Literal["any-to-any", "rail-only"]
"""What the scale-out network joins: every two GPUs, or those of one place in every scale-up domain
(Wang et al., arXiv:2307.12169)."""


MOST_FLOWS = 1 << 14
"""Of one switch: with more, hashing spreads them evenly."""


class FabricTier(Spec):
    """One level of the scale-out network, inner to outer."""

    reach_gpus: PositiveInt = Field(le=1 << 30)
    """GPUs below one switch group of this tier."""
    oversubscription: float = Field(default=1.0, ge=1.0, le=1e6)
    """Traffic that leaves this tier gets 1 / oversubscription of the NIC bandwidth."""
    latency_us: AmountOrZero = 0.0
    """Extra latency of a message that leaves this tier."""
    ecmp_uplinks: PositiveInt | None = Field(default=None, le=1 << 12)
    """Links up of one switch, as fast as adapters, on which flows are hashed at random; null:
    paths are planned or packets sprayed, and no two flows collide."""
    flows_per_gpu: PositiveInt = Field(default=1, le=1 << 10)
    """Flows that a GPU sends by at once: NCCL's channels of its adapter times
    `NCCL_IB_QPS_PER_CONNECTION`."""

    @property
    def gpus_per_switch(self) -> float:
        """GPUs below one switch whose flows are hashed: a tier has as many switches as fill it."""
        switches = self.reach_gpus // ((self.ecmp_uplinks or 1) * self.oversubscription)
        return self.reach_gpus / max(1, switches)

    @model_validator(mode="after")
    def _flows_are_hashed(self) -> Self:
        if self.ecmp_uplinks is None and self.flows_per_gpu > 1:
            raise ValueError("flows_per_gpu counts where flows are hashed: give ecmp_uplinks too")
        if self.ecmp_uplinks and self.gpus_per_switch * self.flows_per_gpu > MOST_FLOWS:
            raise ValueError(
                f"flows of one switch, {self.gpus_per_switch:,.0f} GPUs times flows_per_gpu, are "
                f"at most {MOST_FLOWS:,}: give ecmp_uplinks and oversubscription of one switch"
            )
        return self


class NodeGroup(Spec):
    """Equal nodes. Everything left out comes from the GPU's catalog entry."""

    gpu: str
    """Name in the [catalog](gpus.md)."""
    device: GpuSpec | None = None
    """Numbers of a device the catalog does not have, as a profile measured them."""
    num_nodes: PositiveInt = Field(le=MOST_NODES)
    """Nodes."""
    gpus_per_node: PositiveInt = Field(le=MOST_GPUS_PER_NODE)
    """GPUs of one node."""
    nvlink_domain: PositiveInt | None = Field(default=None, le=MOST_GPUS)
    """GPUs that share one NVLink (or xGMI) domain; may exceed a node (GB200 NVL72: 72)."""
    nic: NicSpec | None = None
    """Null: the usual node's."""
    memory_gib: Amount | None = None
    """Usable memory of one GPU, where it differs from the catalog."""
    power_limit_w: Amount | None = None
    """Watts that the board of one GPU may draw; null: as many as its catalog entry states."""
    price_per_gpu_hour: AmountOrZero | None = None
    """Null: no money in the report."""
    host: HostSpec | None = None
    """Memory, processors and drives of one node; null: not known."""

    @property
    def num_gpus(self) -> int:
        """GPUs of the group."""
        return self.num_nodes * self.gpus_per_node

    def built_domain_gpus(self, device: GpuSpec) -> int:
        """GPUs of one scale-up domain: as stated, or as the device is usually built."""
        if self.nvlink_domain:
            return self.nvlink_domain
        rack_scale = device.nvlink_domain > device.gpus_per_node
        return device.nvlink_domain if rack_scale else min(self.gpus_per_node, device.nvlink_domain)

    def segment_nodes(self, device: GpuSpec) -> int | None:
        """Nodes of the job in each domain of several nodes, where all domains give equally many.

        The most that divide the job's nodes, at least half of a domain: a scheduler of racks is
        given such a segment. Null: nodes are domains, or no number of nodes divides so.

        Source: man sbatch, `--segment` (it divides the nodes of the job and fits into one block);
        NVIDIA advises 16 of the 18 nodes of a GB200 NVL72,
        https://developer.nvidia.com/blog/?p=116606.
        """
        most = self.built_domain_gpus(device) // self.gpus_per_node
        if most < 2:
            return None
        if self.num_nodes <= most:
            return self.num_nodes
        fits = (size for size in range(most, (most - 1) // 2, -1) if self.num_nodes % size == 0)
        return next(fits, None)

    def domain_gpus(self, device: GpuSpec) -> int:
        """GPUs of the job in one scale-up domain: of several nodes, those of its segment.

        Where no segment divides the nodes, they fill one domain after the other.
        """
        built, segment = self.built_domain_gpus(device), self.segment_nodes(device)
        if built < 2 * self.gpus_per_node:
            return built
        return self.gpus_per_node * (segment or built // self.gpus_per_node)


class BetweenGroups(Spec):
    """The network that joins node groups."""

    gb_per_s: Amount
    """GB/s of one node towards nodes of other groups, in one direction (25 GbE = 3.125)."""
    latency_us: AmountOrZero = 0.0
    """Extra latency of a message between groups."""


class ClusterSpec(Spec):
    """A cluster of one or more groups of equal nodes."""

    name: str = "custom"
    """Shown in reports and scripts."""
    groups: tuple[NodeGroup, ...] = Field(min_length=1)
    """At least one."""
    fabric: tuple[FabricTier, ...] = ()
    """Levels of the scale-out network, inner to outer; empty: no bottleneck above the NICs."""
    network: Network = "any-to-any"
    """`rail-only`: nothing joins rails, and what is for another one passes through the sender's
    scale-up domain first."""
    switches: SwitchSpec | None = None
    """Of which the scale-out network is built; null: it is not counted."""
    currency: str = "USD"
    """Of prices."""
    pue: float | None = Field(default=None, ge=1.0, le=10.0)
    """Energy of the whole site over that of its machines; null: not stated."""
    kg_co2_per_kwh: float | None = Field(default=None, ge=0.0, le=10.0)
    """Carbon dioxide that a kWh of its electricity emits, in kg; null: not stated."""
    links: LinkSpec | None = None
    """Measured links between the nodes, where they are known; null: all equal."""
    between_groups: BetweenGroups | None = None
    """How the groups are joined; null: by the thinner NIC of both."""
    failures: FailureSpec | None = None
    """How often nodes fail and how a run is saved; null: times are without failures."""

    @model_validator(mode="after")
    def _tiers_grow(self) -> Self:
        reaches = [tier.reach_gpus for tier in self.fabric]
        if reaches != sorted(set(reaches)):
            raise ValueError("fabric tiers must be listed inner to outer with growing reach_gpus")
        return self

    @model_validator(mode="after")
    def _links_name_every_node(self) -> Self:
        count = self.num_nodes
        if self.links is not None and len(self.links.nodes) != count:
            raise ValueError(
                f"links names {len(self.links.nodes)} nodes, the groups have {count}: name every "
                "node of the cluster once"
            )
        return self

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole cluster: the world size of the job."""
        return sum(group.num_gpus for group in self.groups)

    def with_nodes(self, counts: Iterable[int]) -> Self:
        """So many nodes of each group; what joins groups goes where one is left."""
        pairs = zip(self.groups, counts, strict=True)
        groups = tuple(one.model_copy(update={"num_nodes": count}) for one, count in pairs if count)
        between = self.between_groups if len(groups) > 1 else None
        changed = {"groups": groups, "between_groups": between}
        return self if groups == self.groups else self.model_copy(update=changed)

    def repeated(self, count: int, gb_per_s: float, latency_us: float) -> Self:
        """So many of its groups, joined by a network of so many GB/s of a node."""
        between = BetweenGroups(gb_per_s=gb_per_s, latency_us=latency_us)
        return self.model_copy(update={"groups": self.groups * count, "between_groups": between})

    @property
    def text(self) -> str:
        """Its nodes, as `--cluster` takes them."""
        return "+".join(f"{g.num_nodes}x{g.gpus_per_node}:{g.gpu}" for g in self.groups)

    @property
    def num_nodes(self) -> int:
        """Nodes of all groups."""
        return sum(group.num_nodes for group in self.groups)

    @property
    def by_proxies(self) -> bool:
        """Does the host of any group post what its GPUs send to other nodes?"""
        return any(group.nic.by_proxies for group in self.groups if group.nic)

    @property
    def on_cpu(self) -> bool:
        """Are its ranks processes on the cores of machines without GPUs, as a profile states?"""
        return all(group.device and group.device.vendor == CPU for group in self.groups)


SHORT_FORM = re.compile(
    r"(?P<nodes>\d+)x(?P<gpus>\d+):(?P<gpu>[A-Za-z0-9._-]+)(@(?P<host>[A-Za-z0-9._-]+))?"
)
"""`NODESxGPUS_PER_NODE:GPU[@HOST]`, for instance `8x8:h100-sxm` or `8x8:h100-sxm@dgx-h100`."""


def parse_cluster(text: str) -> ClusterSpec:
    """Read the short form `8x8:h100-sxm[@HOST]` (several groups joined with `+`).

    Raises:
        SpecError: The text is not of that form or a count is zero.
    """
    groups = []
    for part in text.split("+"):
        match = SHORT_FORM.fullmatch(part)
        if match is None:
            raise SpecError(
                f"cluster {text!r}: expected NODESxGPUS:GPU such as '8x8:h100-sxm', or a YAML file"
            )
        nodes, gpus = int(match["nodes"][:DIGITS]), int(match["gpus"][:DIGITS])
        if nodes == 0 or gpus == 0:
            raise SpecError(f"cluster {text!r} has no GPUs: nodes and GPUs per node must be >= 1")
        if nodes > MOST_NODES or gpus > MOST_GPUS_PER_NODE:
            raise SpecError(
                f"cluster {text[:40]!r} is too large: at most {MOST_NODES:,} nodes of "
                f"{MOST_GPUS_PER_NODE:,} GPUs are planned"
            )
        host = HostSpec(like=match["host"]) if match["host"] else None
        groups.append(NodeGroup(gpu=match["gpu"], num_nodes=nodes, gpus_per_node=gpus, host=host))
    return ClusterSpec(name=text, groups=tuple(groups))

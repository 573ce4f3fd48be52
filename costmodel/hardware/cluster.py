"""Where it is trained: groups of equal nodes, their links, what they cost."""

from __future__ import annotations

import re
from typing import Self

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.hardware.gpu import CPU, GpuSpec
from trainplan.costmodel.hardware.host import HostSpec
from trainplan.costmodel.hardware.links import LinkSpec
from trainplan.costmodel.spec import Spec

MOST_NODES = 1 << 20
MOST_GPUS_PER_NODE = 1 << 10
MOST_GPUS = 1 << 20
"""Larger clusters are a typing slip, and the search would list their divisors for hours."""
DIGITS = 9
"""Digits of a count that are read; a longer one is too large anyway."""


class NicSpec(Spec):
    """Network adapters of one node; each is one rail."""

    per_node: PositiveInt = Field(le=MOST_GPUS_PER_NODE)
    """Adapters of a node."""
    gb_per_s: PositiveFloat
    """Datasheet GB/s of one adapter in one direction (400 Gb/s = 50)."""


class FabricTier(Spec):
    """One level of the scale-out network, inner to outer."""

    reach_gpus: PositiveInt = Field(le=1 << 30)
    """GPUs below one switch group of this tier."""
    oversubscription: float = Field(default=1.0, ge=1.0)
    """Traffic that leaves this tier gets 1 / oversubscription of the NIC bandwidth."""
    latency_us: NonNegativeFloat = 0.0
    """Extra latency of a message that leaves this tier."""


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
    memory_gib: PositiveFloat | None = None
    """Usable memory of one GPU, where it differs from the catalog."""
    price_per_gpu_hour: NonNegativeFloat | None = None
    """Null: no money in the report."""
    host: HostSpec | None = None
    """Memory, processors and drives of one node; null: not known."""

    @property
    def num_gpus(self) -> int:
        """GPUs of the group."""
        return self.num_nodes * self.gpus_per_node

    def domain_gpus(self, device: GpuSpec) -> int:
        """GPUs of one scale-up domain: as stated, or as the device is usually built."""
        if self.nvlink_domain:
            return self.nvlink_domain
        rack_scale = device.nvlink_domain > device.gpus_per_node
        return device.nvlink_domain if rack_scale else min(self.gpus_per_node, device.nvlink_domain)


class BetweenGroups(Spec):
    """The network that joins node groups."""

    gb_per_s: PositiveFloat
    """GB/s of one node towards nodes of other groups, in one direction (25 GbE = 3.125)."""
    latency_us: NonNegativeFloat = 0.0
    """Extra latency of a message between groups."""


class ClusterSpec(Spec):
    """A cluster of one or more groups of equal nodes."""

    name: str = "custom"
    """Shown in reports and scripts."""
    groups: tuple[NodeGroup, ...] = Field(min_length=1)
    """At least one."""
    fabric: tuple[FabricTier, ...] = ()
    """Levels of the scale-out network, inner to outer; empty: no bottleneck above the NICs."""
    currency: str = "USD"
    """Of `price_per_gpu_hour`."""
    pue: float | None = Field(default=None, ge=1.0, le=10.0)
    """Energy of the whole site over that of its machines; null: not stated."""
    kg_co2_per_kwh: float | None = Field(default=None, ge=0.0, le=10.0)
    """Carbon dioxide that a kWh of its electricity emits, in kg; null: not stated."""
    links: LinkSpec | None = None
    """Measured links between the nodes, where they are known; null: all alike."""
    between_groups: BetweenGroups | None = None
    """How the groups are joined; null: by the thinner NIC of both."""

    @model_validator(mode="after")
    def _tiers_grow(self) -> Self:
        reaches = [tier.reach_gpus for tier in self.fabric]
        if reaches != sorted(set(reaches)):
            raise ValueError("fabric tiers must be listed inner to outer with growing reach_gpus")
        return self

    @model_validator(mode="after")
    def _links_name_every_node(self) -> Self:
        count = sum(group.num_nodes for group in self.groups)
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

    @property
    def on_cpu(self) -> bool:
        """Are its ranks processes on the cores of machines without GPUs, as a profile says?"""
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

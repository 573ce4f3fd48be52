"""Catalog and fitted constants of a cluster, as the numbers formulas use.

A cluster of different node groups is priced at its slowest group: where the ranks of a stage lie in
several groups, the slowest GPU sets the pace, the smallest memory decides what fits and the
thinnest link, that between groups included, carries every collective that leaves a domain. Stages
that lie in one group each are priced on the machine of their group (`step.heterogeneous`).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GB, GIB, SpecError, UnsupportedError
from trainplan.costmodel.documents import Constants
from trainplan.costmodel.hardware import ClusterSpec, FabricTier, GpuSpec, NodeGroup
from trainplan.costmodel.job import FULL_WIDTH, LOW_PRECISION, Precision, storage_bytes
from trainplan.costmodel.machine.hardware import (
    KnownCurves,
    Provenance,
    attention_fit,
    collective_fits,
    gemm_rate,
    known_of,
    link_bytes_per_second,
    powered_clock,
    sustained,
)
from trainplan.costmodel.machine.hosts import host_figures, host_link, launch_factor, least_host
from trainplan.costmodel.machine.machine import Machine
from trainplan.costmodel.profiles import Profile

LEAST = (
    *("domain_gpus", "memory_bytes", "memory_bytes_per_second", "host_bytes_per_second"),
    *("gpus_per_node", "rails"),
)
"""What different node groups have together: the least that any has."""


def machine_of(
    cluster: ClusterSpec,
    precision: Precision,
    constants: Constants | None = None,
    profile: Profile | None = None,
) -> Machine:
    """Numbers of a cluster for one precision; different groups give their slowest member.

    Curves of a profile replace those of the catalog for its GPU.

    Raises:
        SpecError: A number the cluster needs is neither in the file nor in the catalog.
        UnsupportedError: The GPU has no tensor cores for the precision.
        CatalogError: The GPU is not in the catalog.
    """
    fixed = constants or catalog.constants()
    known = [known_of(group, profile) for group in cluster.groups]
    machines = [_group_machine(cluster, i, precision, fixed, known[i]) for i in range(len(known))]
    slowest = min(machines, key=lambda m: m.linear.peak_flop_per_second / m.linear.flop_factor)
    between = _group_link_bytes_per_second(cluster)
    return replace(
        slowest,
        num_gpus=cluster.num_gpus,
        **{name: min(getattr(m, name) for m in machines) for name in LEAST},
        host_factor=max(m.host_factor for m in machines),
        alpha_seconds=np.max([m.alpha_seconds for m in machines], axis=0),
        sqrt_coefficient=np.max([m.sqrt_coefficient for m in machines], axis=0),
        bus_bytes_per_second=np.min([m.bus_bytes_per_second for m in machines], axis=0),
        link_bytes_per_second=np.min([m.link_bytes_per_second for m in machines], axis=0),
        nic_bytes_per_second=min(between, *(m.nic_bytes_per_second for m in machines)),
        fabric=(*cluster.fabric, *_group_link_tier(cluster)),
        provenance=tuple(dict.fromkeys(p for m in machines for p in m.provenance)),
        **least_host(machines),
    )


def _group_machine(
    cluster: ClusterSpec, index: int, precision: Precision, constants: Constants, known: KnownCurves
) -> Machine:
    group, spec = cluster.groups[index], known.spec
    trace: list[Provenance] = [
        Provenance(
            f"{group.gpu} datasheet",
            "measured" if group.device else "assumed" if spec.announced else "datasheet",
            f"announced: {spec.announced}" if spec.announced else spec.memory_gib.source,
        )
    ]
    bf16_key = "bf16" if "bf16" in spec.peak_tflops else "fp16"
    if precision not in spec.peak_tflops:
        names = [p for p in get_args(Precision) if p in spec.peak_tflops]
        raise UnsupportedError(
            f"no {precision} speed of {group.gpu} is known: choose --precision {' or '.join(names)}"
        )
    half_key = precision if precision in FULL_WIDTH else bf16_key
    half = gemm_rate(known, half_key, trace)
    linear_key = precision if precision in LOW_PRECISION else half_key
    linear = half if linear_key == half_key else gemm_rate(known, linear_key, trace)
    attention = attention_fit(known, trace)
    burst = 1.0 if known.measured.attention else sustained(known, half_key)
    if known.power_limit_w:
        trace.append(_power(known))
    trace.extend(_hashed(cluster))
    alpha, bus, sqrt_c = collective_fits(known, trace)
    host = host_figures(group, trace)
    return Machine(
        num_gpus=group.num_gpus,
        domain_gpus=group.domain_gpus(spec),
        memory_bytes=(group.memory_gib or spec.memory_gib.value) * GIB,
        memory_bytes_per_second=spec.memory_gb_per_s.value * GB,
        half=half,
        linear=linear,
        attention_max_efficiency=attention.max_efficiency * burst,
        attention_half_length=attention.half_length,
        alpha_seconds=alpha,
        bus_bytes_per_second=bus,
        sqrt_coefficient=sqrt_c,
        link_bytes_per_second=link_bytes_per_second(known, bus),
        nic_bytes_per_second=_nic(cluster, index, known, constants, trace),
        adapter_bytes_per_second=_adapter(group, spec),
        by_proxies=cluster.by_proxies,
        fabric=cluster.fabric,
        rails=_rails(cluster, index, spec, trace),
        host_bytes_per_second=host_link(group, spec.host_gb_per_s.value * GB),
        gpus_per_node=group.gpus_per_node,
        peak_flop_per_second=linear.peak_flop_per_second,
        provenance=tuple(trace),
        constants=constants,
        storage_bytes=storage_bytes(precision),
        architecture=spec.architecture,
        host_factor=launch_factor(group, spec.host_factor.value if spec.host_factor else 1.0),
        **host,
    )


def _power(known: KnownCurves) -> Provenance:
    """That a stated limit of power lowers the clock, and to what."""
    share = f"{powered_clock(known, known.spec):.2f} of their sustained speed"
    return Provenance(
        f"{known.name} at {known.power_limit_w:g} W",
        "assumed",
        f"products and attention at {share}: clock ~ power^(1/3), derived",
    )


def _group_link_bytes_per_second(cluster: ClusterSpec) -> float:
    """Bandwidth of one GPU towards other groups where all GPUs of its node send; else infinite.

    Source: where all GPUs of a node send at once they share its adapter evenly; the node with most
    GPUs has the smallest shares.
    """
    if len(cluster.groups) == 1 or cluster.between_groups is None:
        return float("inf")
    shares = max(group.gpus_per_node for group in cluster.groups)
    return cluster.between_groups.gb_per_s * GB / shares


def _group_link_tier(cluster: ClusterSpec) -> tuple[FabricTier, ...]:
    """The latency between groups, paid by all that is larger than the smallest group."""
    if len(cluster.groups) == 1 or cluster.between_groups is None:
        return ()
    reach = min(group.num_gpus for group in cluster.groups)
    return (FabricTier(reach_gpus=reach, latency_us=cluster.between_groups.latency_us),)


def _hashed(cluster: ClusterSpec) -> Iterator[Provenance]:
    """That flows are hashed on links up, and how many."""
    for tier in cluster.fabric:
        if tier.ecmp_uplinks:
            flows = f"{tier.gpus_per_switch * tier.flows_per_gpu:g} flows on {tier.ecmp_uplinks}"
            yield Provenance(
                f"collisions above {tier.reach_gpus} GPUs",
                "assumed",
                f"at most {flows} links of a switch, at random: the expected fullest link counts",
            )


def _rails(cluster: ClusterSpec, index: int, spec: GpuSpec, trace: list[Provenance]) -> int:
    """Rails of one domain of a rail-only network: one for each adapter, at most one for each GPU.

    Raises:
        SpecError: GPUs share adapters unevenly, or domains of the groups have different rails.
    """
    group = cluster.groups[index]
    domain = group.domain_gpus(spec)
    if cluster.network != "rail-only" or cluster.num_gpus <= domain:
        return 0
    adapters = min(group.nic.per_node, group.gpus_per_node) if group.nic else group.gpus_per_node
    rails, rest = divmod(domain * adapters, group.gpus_per_node)
    first = cluster.groups[0]
    if rest or domain % rails:
        raise SpecError(
            f"groups[{index}] of cluster {cluster.name!r} has {domain} GPUs in a scale-up domain "
            f"and {adapters} adapters for {group.gpus_per_node} GPUs, which makes no equal rails: "
            "give a nic.per_node that divides the GPUs, or leave out `network: rail-only`"
        )
    if domain != first.domain_gpus(catalog.device(first)):
        raise SpecError(
            f"groups of cluster {cluster.name!r} have scale-up domains of different size, so no "
            "rail joins them: leave out `network: rail-only`"
        )
    trace.append(
        Provenance(
            "rail-only network",
            "assumed",
            f"{rails} rails: what is for another one passes over a link first, arXiv:2307.12169",
        )
    )
    return rails


def _adapter(group: NodeGroup, spec: GpuSpec) -> float:
    """Of one adapter; where none is stated each GPU has its own."""
    if group.nic:
        return group.nic.gb_per_s * GB
    return spec.nic_gb_per_s.value * GB if spec.nic_gb_per_s else float("inf")


def _nic(
    cluster: ClusterSpec,
    index: int,
    known: KnownCurves,
    constants: Constants,
    trace: list[Provenance],
) -> float:
    """Bandwidth before `nic_efficiency`, which a measured one has in it."""
    group, spec = cluster.groups[index], known.spec
    domain = group.domain_gpus(spec)
    if known.nic and cluster.num_gpus > domain:
        trace.append(Provenance(f"{group.gpu} NIC", "measured", known.nic.source))
        return known.nic.value * GB / constants.nic_efficiency
    if group.nic:
        return group.nic.per_node * group.nic.gb_per_s * GB / group.gpus_per_node
    if cluster.num_gpus <= domain:
        return float("inf")
    if spec.nic_gb_per_s is None:
        raise SpecError(
            f"groups[{index}] of cluster {cluster.name!r} has more GPUs than one scale-up domain "
            f"of {group.gpu} ({domain}), and the NIC of its nodes is unknown: give "
            "--nic 400Gb/s, or a cluster file with `nic: {per_node, gb_per_s}` "
            "(`plan catalog clusters --template` prints one)"
        )
    trace.append(Provenance(f"{group.gpu} NIC", "datasheet", spec.nic_gb_per_s.source))
    return spec.nic_gb_per_s.value * GB

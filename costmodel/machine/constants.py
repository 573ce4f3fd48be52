"""Catalog and fitted constants of a cluster, as the numbers formulas use.

A cluster of unlike node groups is priced at its slowest group: where the ranks of a stage lie in
several groups, the slowest GPU sets the pace, the smallest memory decides what fits and the
thinnest link, that between groups included, carries every collective that leaves a domain. Stages
that lie in one group each are priced on the machine of their group (`step.heterogeneous`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GB, GIB, SpecError, UnsupportedError
from trainplan.costmodel.layouts import FloatColumn
from trainplan.costmodel.machine.hardware import (
    GemmRate,
    KnownCurves,
    Provenance,
    attention_fit,
    collective_fits,
    gemm_rate,
    known_of,
    link_bytes_per_second,
    sustained,
)
from trainplan.costmodel.machine.hosts import (
    Drives,
    host_figures,
    host_link,
    least_host,
)
from trainplan.costmodel.machine.residuals import Residuals
from trainplan.costmodel.machine.shares import ALONE, Shares
from trainplan.costmodel.spec import ClusterSpec
from trainplan.costmodel.spec.cluster import FabricTier
from trainplan.costmodel.spec.evidence.constants import Constants
from trainplan.costmodel.spec.evidence.profile import EndPoint, LayerPoint, Profile
from trainplan.costmodel.spec.job import FULL_WIDTH, LOW_PRECISION, Precision, storage_bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """What the formulas know of a cluster. Bandwidths are bytes per second of one GPU."""

    num_gpus: int
    domain_gpus: int
    """GPUs in one scale-up domain."""
    memory_bytes: float
    memory_bytes_per_second: float
    half: GemmRate
    """Matrix products that stay in 16 bits where the job computes in 8 or 4; else as `linear`."""
    linear: GemmRate
    """Matrix products in the precision of the job."""
    attention_max_efficiency: float
    attention_half_length: float
    alpha_seconds: FloatColumn
    """Latency by operation and shape of group, shape (operations, `machine.hardware.SHAPES`)."""
    bus_bytes_per_second: FloatColumn
    sqrt_coefficient: FloatColumn
    link_bytes_per_second: FloatColumn
    """Of a message between two GPUs of a domain, by `costmodel.machine.hardware.STRIDES`."""
    nic_bytes_per_second: float
    """Datasheet; infinite where the cluster is one domain."""
    fabric: tuple[FabricTier, ...]
    host_bytes_per_second: float
    """To host memory, one direction."""
    gpus_per_node: int
    peak_flop_per_second: float
    """Dense datasheet peak of the precision in use: what MFU is counted against."""
    provenance: tuple[Provenance, ...]
    constants: Constants
    storage_bytes: int
    """Bytes of one activation or working weight."""
    architecture: str
    host_factor: float
    """Launch time of the host over that of an x86 server."""
    speed: float = 1.0
    """Measured over predicted speed of whole steps, where a calibration says so."""
    fixed_overhead_seconds: float = 0.0
    """Added to every step, where a calibration says so."""

    calibrated: bool = False
    """Corrected by measured steps of the job's own precision and runtime."""

    attention_residuals: Residuals | None = None
    """Of the core, by sequence length, rows (heads times sequences) and both widths of a head."""
    attention_backward_residuals: Residuals | None = None
    collective_residuals: Mapping[tuple[int, int], Residuals] = field(default_factory=dict)
    """By row and column of the fits; over bytes of the full tensor, inside one domain."""
    layers: tuple[LayerPoint, ...] = ()
    """Whole layers that were measured: their level is that of the parts."""
    ends: tuple[EndPoint, ...] = ()
    """Embeddings and heads that were measured, as `layers`."""
    optimizer_bytes_per_second: float | None = None
    """Measured speed of Adam; null: that of other kernels without reuse."""
    optimizer_slowness: float = 1.0
    """Measured over derived seconds of a step of the job's optimizer, where it is not AdamW."""
    permute_bytes_per_second: float | None = None
    """Measured speed of kernels that sort rows by expert; null: as fitted with their passes."""
    loss_bytes_per_second: float | None = None
    """Measured speed of the fused loss; null: that of other kernels without reuse."""
    cpu_adam_params_per_second: float | None = None
    """Measured, or stated, of all cores of a node; null: as published."""
    host_memory_bytes: float | None = None
    """Of one node; null: not known, so not checked."""
    drives: Drives | None = None
    """Of one node; null: none is known."""
    outside_bytes: float | None = None
    """Measured device memory outside the allocator; null: that of the runtime."""

    shares: Shares = ALONE
    """Of what was measured, beside the catalog."""
    unvalidated: bool = False
    """Priced from measured parts that no measured step was held against."""

    groups: tuple[Machine, ...] = ()
    """The machine of each node group alone, where there are several."""


def machine_of(
    cluster: ClusterSpec,
    precision: Precision,
    constants: Constants | None = None,
    profile: Profile | None = None,
) -> Machine:
    """Numbers of a cluster for one precision; unlike groups give their slowest member.

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
    return Machine(
        num_gpus=cluster.num_gpus,
        domain_gpus=min(m.domain_gpus for m in machines),
        memory_bytes=min(m.memory_bytes for m in machines),
        memory_bytes_per_second=min(m.memory_bytes_per_second for m in machines),
        half=slowest.half,
        linear=slowest.linear,
        attention_max_efficiency=slowest.attention_max_efficiency,
        attention_half_length=slowest.attention_half_length,
        alpha_seconds=np.max([m.alpha_seconds for m in machines], axis=0),
        bus_bytes_per_second=np.min([m.bus_bytes_per_second for m in machines], axis=0),
        sqrt_coefficient=np.max([m.sqrt_coefficient for m in machines], axis=0),
        link_bytes_per_second=np.min([m.link_bytes_per_second for m in machines], axis=0),
        nic_bytes_per_second=min(
            _group_link_bytes_per_second(cluster), *(m.nic_bytes_per_second for m in machines)
        ),
        fabric=(*cluster.fabric, *_group_link_tier(cluster)),
        host_bytes_per_second=min(m.host_bytes_per_second for m in machines),
        gpus_per_node=min(m.gpus_per_node for m in machines),
        peak_flop_per_second=slowest.peak_flop_per_second,
        provenance=tuple(dict.fromkeys(p for m in machines for p in m.provenance)),
        constants=fixed,
        storage_bytes=slowest.storage_bytes,
        architecture=slowest.architecture,
        host_factor=max(m.host_factor for m in machines),
        **least_host(machines),
    )


def _group_machine(
    cluster: ClusterSpec, index: int, precision: Precision, constants: Constants, known: KnownCurves
) -> Machine:
    group, spec = cluster.groups[index], known.spec
    trace: list[Provenance] = [
        Provenance(
            f"{group.gpu} datasheet",
            "measured" if group.device else "datasheet",
            spec.memory_gib.source,
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
        fabric=cluster.fabric,
        host_bytes_per_second=host_link(group, spec.host_gb_per_s.value * GB),
        gpus_per_node=group.gpus_per_node,
        peak_flop_per_second=linear.peak_flop_per_second,
        provenance=tuple(trace),
        constants=constants,
        storage_bytes=storage_bytes(precision),
        architecture=spec.architecture,
        host_factor=spec.host_factor.value if spec.host_factor else 1.0,
        **host,
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

"""Catalog and fitted constants of a cluster, as the numbers formulas use.

A cluster of unlike node groups is priced at its slowest group: degrees are equal on all stages, so
the slowest GPU sets the pace, the smallest memory decides what fits and the thinnest link carries
every collective that crosses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from costmodel import catalog
from costmodel.errors import SpecError, UnsupportedError
from costmodel.spec.cluster import ClusterSpec, FabricTier, NodeGroup
from costmodel.spec.constants import Constants
from costmodel.spec.gpu import CollectiveFit, FittedConstants, GemmFit, GpuSpec
from costmodel.spec.training import LOW_PRECISION, Precision, storage_bytes
from costmodel.table import FloatColumn
from costmodel.units import BYTES_BF16, BYTES_FP8, BYTES_FP32, GB, GIB, MICROSECOND, TERA

Kind = Literal["measured", "fitted", "datasheet", "assumed"]

GROUP_SIZES = (2, 4, 8)
"""Sizes of the collective fits; a larger group takes the last one."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")

ASSUMED_GEMM = GemmFit(
    fixed_us=6.0,
    flop_factor=1.33,
    byte_factor=0.5,
    source="assumed: mid-range of the fitted GPUs (flop factor 1.12 to 1.64)",
)
ASSUMED_SUSTAINED = 0.85
"""Source: assumed; median of the fitted sustained factors, docs/explanation/constants.md."""
ASSUMED_LINK_FRACTION = 0.75
"""Bus bandwidth over datasheet link speed. Source: 230/300 on A100 and 343-481/450 on H100."""
ASSUMED_ALPHA_US = 20.0
"""Latency of a collective without a fit. Source: all_reduce_8 on A100, 21 us."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where one number of the machine comes from."""

    quantity: str
    kind: Kind
    source: str


@dataclass(frozen=True, slots=True)
class GemmRate:
    """Matrix products in one precision."""

    peak_flop_per_second: float
    fixed_seconds: float
    flop_factor: float
    byte_factor: float
    element_bytes: int


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
    """Latency by operation and group size, shape (operations, sizes)."""
    bus_bytes_per_second: FloatColumn
    sqrt_coefficient: FloatColumn
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


def machine_of(
    cluster: ClusterSpec, precision: Precision, constants: Constants | None = None
) -> Machine:
    """Numbers of a cluster for one precision; unlike groups give their slowest member.

    Raises:
        SpecError: A number the cluster needs is neither in the file nor in the catalog.
        UnsupportedError: The GPU has no tensor cores for the precision.
        CatalogError: The GPU is not in the catalog.
    """
    fixed = constants or catalog.constants()
    machines = [_group_machine(cluster, i, precision, fixed) for i in range(len(cluster.groups))]
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
        nic_bytes_per_second=min(m.nic_bytes_per_second for m in machines),
        fabric=cluster.fabric,
        host_bytes_per_second=min(m.host_bytes_per_second for m in machines),
        gpus_per_node=min(m.gpus_per_node for m in machines),
        peak_flop_per_second=slowest.peak_flop_per_second,
        provenance=tuple(dict.fromkeys(p for m in machines for p in m.provenance)),
        constants=fixed,
        storage_bytes=slowest.storage_bytes,
        architecture=slowest.architecture,
        host_factor=max(m.host_factor for m in machines),
    )


def _group_machine(
    cluster: ClusterSpec, index: int, precision: Precision, constants: Constants
) -> Machine:
    group = cluster.groups[index]
    spec, own = catalog.gpu(group.gpu), catalog.fitted(group.gpu)
    other_name = catalog.stand_in(group.gpu)
    other = catalog.fitted(other_name) if other_name else FittedConstants()
    trace: list[Provenance] = [
        Provenance(f"{group.gpu} datasheet", "datasheet", spec.memory_gib.source)
    ]
    bf16_key = "bf16" if "bf16" in spec.peak_tflops else "fp16"
    if precision not in spec.peak_tflops:
        known = [p for p in get_args(Precision) if p in spec.peak_tflops]
        raise UnsupportedError(
            f"{group.gpu} has no {precision} matrix units: choose --precision {' or '.join(known)}"
        )
    half_key = "tf32" if precision == "tf32" else bf16_key
    half = _gemm_rate(group.gpu, half_key, (own, other), trace)
    linear_key = precision if precision in LOW_PRECISION else half_key
    linear = (
        half if linear_key == half_key else _gemm_rate(group.gpu, linear_key, (own, other), trace)
    )
    attention = own.attention or other.attention or catalog.fitted("a100-sxm-80gb").attention
    assert attention is not None
    trace.append(
        _fit_provenance("attention", group.gpu, attention.source, own=own.attention is not None)
    )
    alpha, bus, sqrt_c = _collectives(group.gpu, spec, own, other, trace)
    return Machine(
        num_gpus=group.num_gpus,
        domain_gpus=_domain(group, spec),
        memory_bytes=(group.memory_gib or spec.memory_gib.value) * GIB,
        memory_bytes_per_second=spec.memory_gb_per_s.value * GB,
        half=half,
        linear=linear,
        attention_max_efficiency=attention.max_efficiency * sustained_speed(group.gpu, half_key),
        attention_half_length=attention.half_length,
        alpha_seconds=alpha,
        bus_bytes_per_second=bus,
        sqrt_coefficient=sqrt_c,
        nic_bytes_per_second=_nic(cluster, index, spec, trace),
        fabric=cluster.fabric,
        host_bytes_per_second=spec.host_gb_per_s.value * GB,
        gpus_per_node=group.gpus_per_node,
        peak_flop_per_second=linear.peak_flop_per_second,
        provenance=tuple(trace),
        constants=constants,
        storage_bytes=storage_bytes(precision),
        architecture=spec.architecture,
        host_factor=spec.host_factor.value if spec.host_factor else 1.0,
    )


def _domain(group: NodeGroup, spec: GpuSpec) -> int:
    if group.nvlink_domain:
        return group.nvlink_domain
    rack_scale = spec.nvlink_domain > spec.gpus_per_node
    return spec.nvlink_domain if rack_scale else min(group.gpus_per_node, spec.nvlink_domain)


def _nic(cluster: ClusterSpec, index: int, spec: GpuSpec, trace: list[Provenance]) -> float:
    group = cluster.groups[index]
    if group.nic:
        return group.nic.per_node * group.nic.gb_per_s * GB / group.gpus_per_node
    if cluster.num_gpus <= _domain(group, spec):
        return float("inf")
    if spec.nic_gb_per_s is None:
        raise SpecError(
            f"groups[{index}] of cluster {cluster.name!r} has more GPUs than one scale-up domain "
            f"of {group.gpu} ({_domain(group, spec)}), and the NIC of its nodes is unknown: give a "
            "cluster file with `nic: {per_node, gb_per_s}` "
            "(`plan catalog clusters --template` prints one)"
        )
    trace.append(Provenance(f"{group.gpu} NIC", "datasheet", spec.nic_gb_per_s.source))
    return spec.nic_gb_per_s.value * GB


def _fit_provenance(quantity: str, gpu: str, source: str, *, own: bool) -> Provenance:
    if own:
        return Provenance(f"{gpu} {quantity}", "fitted", source)
    return Provenance(f"{gpu} {quantity}", "assumed", f"stands in, not measured on {gpu}: {source}")


def _gemm_rate(
    name: str, key: str, fits: tuple[FittedConstants, FittedConstants], trace: list[Provenance]
) -> GemmRate:
    own, other = fits
    spec = catalog.gpu(name)
    low = key in LOW_PRECISION
    fit_key = "fp8_training" if low else "bf16"
    fit = own.gemm.get(fit_key) or other.gemm.get(fit_key) or ASSUMED_GEMM
    sustained = sustained_speed(name, key)
    trace.append(
        _fit_provenance(f"{key} matrix products", name, fit.source, own=fit_key in own.gemm)
    )
    return GemmRate(
        peak_flop_per_second=spec.peak_tflops[key].value * TERA,
        fixed_seconds=fit.fixed_us * MICROSECOND,
        flop_factor=fit.flop_factor / sustained,
        byte_factor=fit.byte_factor,
        element_bytes=BYTES_FP8 if low else BYTES_FP32 if key == "tf32" else BYTES_BF16,
    )


def sustained_speed(gpu: str, precision: str) -> float:
    """Sustained over burst speed of a GPU's products; of a relative where it has none itself.

    Looks for the precision, then for the next lower ones, then for bf16, in the fits of the GPU
    and of its stand-in.
    """
    stand_in = catalog.stand_in(gpu)
    own, other = catalog.fitted(gpu), catalog.fitted(stand_in) if stand_in else FittedConstants()
    family = {"mxfp8": ("mxfp8", "fp8"), "nvfp4": ("nvfp4", "mxfp8", "fp8"), "fp16": ()}
    for name in (*family.get(precision, (precision,)), "bf16"):
        for constants in (own, other):
            if name in constants.sustained:
                return constants.sustained[name].value
    return ASSUMED_SUSTAINED


def _collectives(
    name: str, spec: GpuSpec, own: FittedConstants, other: FittedConstants, trace: list[Provenance]
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    stand_in = catalog.stand_in(name)
    same_link = stand_in is not None and catalog.gpu(stand_in).link == spec.link
    fits = own.collectives or (other.collectives if same_link else {})
    assumed = CollectiveFit(
        alpha_us=ASSUMED_ALPHA_US,
        bus_gb_per_s=ASSUMED_LINK_FRACTION * spec.link_gb_per_s.value,
        sqrt_coefficient=0.0,
        source="assumed: 0.75 of the datasheet link speed",
    )
    used = [[fits.get(f"{op}_{n}", assumed) for n in GROUP_SIZES] for op in OPERATIONS]
    trace.append(_fit_provenance("collectives", name, used[0][2].source, own=bool(own.collectives)))
    return (
        np.array([[fit.alpha_us * MICROSECOND for fit in row] for row in used]),
        np.array([[fit.bus_gb_per_s * GB for fit in row] for row in used]),
        np.array([[fit.sqrt_coefficient for fit in row] for row in used]),
    )

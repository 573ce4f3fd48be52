"""A machine as its profile says it is: what was measured stands beside the fitted curves.

The curves of a profile enter through `machine_of`; here come the residuals around them and the
speeds that are one number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TypeVar

import numpy as np

from costmodel import catalog
from costmodel.comm.collectives import bus_factor
from costmodel.compute import ADAM_STEP_BYTES, Product, fused_attention_seconds, roofline_seconds
from costmodel.hardware import GROUP_SIZES, OPERATIONS, GemmRate
from costmodel.machine import Machine, machine_of
from costmodel.residuals import Residuals, residuals
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.constants import Constants
from costmodel.spec.gpu import CollectiveFit
from costmodel.spec.job import Job
from costmodel.spec.profile import (
    AttentionPoint,
    CollectivePoint,
    CopyPoint,
    EndPoint,
    LayerPoint,
    MemoryPoint,
    OptimizerPoint,
    ProductPoint,
    Profile,
)
from costmodel.spec.training import FULL_WIDTH, LOW_PRECISION, Precision
from costmodel.units import BYTES_FP32

LEAST_POINTS = 3
"""Fewer points say nothing about the shape of what a curve leaves. Source: derived."""
HALVES: tuple[Precision, ...] = ("bf16", "fp16")
PointT = TypeVar("PointT")


def measured_machine(
    cluster: ClusterSpec,
    precision: Precision,
    profile: Profile | None = None,
    constants: Constants | None = None,
) -> Machine:
    """The machine of a cluster, as a profile measured it where one is given.

    Raises:
        PlanError: As `machine_of`.
    """
    fixed = constants or catalog.constants()
    if profile is None:
        return machine_of(cluster, precision, fixed)
    values = {name: one.value for name, one in profile.constants.items()}
    machine = machine_of(cluster, precision, fixed.model_copy(update=values), profile)
    wide = precision in FULL_WIDTH
    half = _with_residuals(machine, machine.half, profile, (precision,) if wide else HALVES)
    low = precision in LOW_PRECISION
    linear = _with_residuals(machine, machine.linear, profile, (precision,)) if low else half
    machine = replace(machine, half=half, linear=linear)
    cores = [
        point
        for point in points_of(profile, AttentionPoint)
        if point.precision in ((precision,) if wide else HALVES)
    ]
    forward, backward = attention_residuals(machine, cores)
    outside = _outside_bytes(points_of(profile, MemoryPoint))
    updates = points_of(profile, OptimizerPoint)
    return replace(
        machine,
        attention_residuals=forward,
        attention_backward_residuals=backward,
        collective_residuals=collective_residuals(
            machine, points_of(profile, CollectivePoint), profile.fitted.collectives
        ),
        layers=plausible([p for p in points_of(profile, LayerPoint) if p.precision == precision]),
        ends=tuple(p for p in points_of(profile, EndPoint) if p.precision == precision),
        optimizer_bytes_per_second=_optimizer_speed(updates),
        cpu_adam_params_per_second=_cpu_adam_speed(profile.gpus_per_node, updates),
        host_bytes_per_second=_host_speed(machine, points_of(profile, CopyPoint)),
        outside_bytes=outside,
    )


def profile_notes(job: Job, profile: Profile) -> tuple[str, ...]:
    """What was measured, and where the job asks for more than that."""
    found = [f"measured: {origin.source}" for origin in profile.origins]
    nodes = sum(group.num_nodes for group in job.cluster.groups)
    across = any(isinstance(p, CollectivePoint) and p.ranks > p.per_node for p in profile.points)
    if nodes > profile.num_nodes and across:
        found.append(
            f"measured on {profile.num_nodes} nodes, asked for {nodes}: start times of collectives "
            "are assumed to grow with the logarithm of the nodes, the bandwidth of a NIC to hold"
        )
    elif nodes > profile.num_nodes:
        found.append(
            f"measured on {profile.num_nodes} node{'s' * (profile.num_nodes > 1)}, asked for "
            f"{nodes}: links between nodes are assumed as in the catalog"
        )
    if job.training.precision not in {p.precision for p in points_of(profile, ProductPoint)}:
        found.append(
            f"no product was measured in {job.training.precision}: its speed is the catalog's"
        )
    return (*found, *profile.notes)


def points_of(profile: Profile, kind: type[PointT]) -> tuple[PointT, ...]:
    """Points of one sort, in order."""
    return tuple(point for point in profile.points if isinstance(point, kind))


def plausible(layers: Sequence[LayerPoint]) -> tuple[LayerPoint, ...]:
    """Measured layers without those slower than the same layer on a larger micro batch.

    Whatever disturbs a measurement makes it longer, and more tokens never take less time.
    """

    def seconds(point: LayerPoint) -> float:
        parts = (point.forward, point.backward, point.both)
        return sum(one.seconds for one in parts if one)

    def same(one: LayerPoint, other: LayerPoint) -> bool:
        fields = ("model", "moe", "runtime", "tp", "ep", "seq_length")
        return all(getattr(one, name) == getattr(other, name) for name in fields)

    return tuple(
        one
        for one in layers
        if not any(
            same(one, other)
            and other.micro_batch_size > one.micro_batch_size
            and seconds(other) < seconds(one)
            for other in layers
        )
    )


def products(points: Sequence[ProductPoint], extra_rows: float = 0.0) -> Product:
    """Measured products as columns, the groups of one kernel together.

    Source: derived; each group costs some rows beyond its own, and a grouped weight gradient counts
    as the product whose weight it is of, both as in `costmodel.blocks.moe`.
    """
    rows = [_sizes(point, extra_rows) for point in points]
    m, n, k = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return Product(m, n, k)


def _sizes(point: ProductPoint, extra_rows: float) -> tuple[float, float, float]:
    if point.groups == 1:
        return point.m, point.n, point.k
    m, n, k = (point.k, point.n, point.m) if point.weight_gradient else (point.m, point.n, point.k)
    return point.groups * (m + extra_rows), n, k


def product_residuals(
    memory_bytes_per_second: float,
    rate: GemmRate,
    points: Sequence[ProductPoint],
    extra_rows: float = 0.0,
) -> Residuals | None:
    """What the curve of a precision leaves of its points; null where they are too few.

    Source: `Residuals` over rows, columns, inner size and bytes of an output element.
    """
    if len(points) < LEAST_POINTS:
        return None
    shapes = products(points, extra_rows)
    wide = np.array([point.weight_gradient and point.groups == 1 for point in points])
    output = np.where(wide, BYTES_FP32, max(2, rate.element_bytes)).astype(float)
    fitted = np.where(
        wide,
        roofline_seconds(memory_bytes_per_second, rate, shapes, BYTES_FP32),
        roofline_seconds(memory_bytes_per_second, rate, shapes, max(2, rate.element_bytes)),
    )
    measured = np.array([point.time.seconds for point in points])
    return residuals((shapes.m, shapes.n, shapes.k, output), measured / fitted)


def _with_residuals(
    machine: Machine, rate: GemmRate, profile: Profile, precisions: tuple[Precision, ...]
) -> GemmRate:
    bandwidth, constants = machine.memory_bytes_per_second, machine.constants
    extra, extra_weight = constants.expert_extra_rows, constants.expert_extra_rows_weight_gradient
    known = [p for p in points_of(profile, ProductPoint) if p.precision in precisions]
    single = [point for point in known if point.groups == 1]
    grouped = [point for point in known if point.groups > 1 and not point.weight_gradient]
    weights = [point for point in known if point.groups > 1 and point.weight_gradient]
    return replace(
        rate,
        residuals=product_residuals(bandwidth, rate, single),
        grouped=product_residuals(bandwidth, rate, grouped, extra),
        grouped_weight=product_residuals(bandwidth, rate, weights, extra_weight),
    )


def attention_residuals(
    machine: Machine, points: Sequence[AttentionPoint]
) -> tuple[Residuals | None, Residuals | None]:
    """What the curve of fused attention leaves of its points, forward and backward."""
    fitted = [_fitted_attention(machine, point) for point in points]
    sizes = [
        (p.seq_length, p.micro_batch_size * p.num_heads, p.head_dim + p.value_dim) for p in points
    ]

    def around(measured: Mapping[int, float], of: Sequence[float]) -> Residuals | None:
        if not measured:
            return None
        columns = [np.array([sizes[i][axis] for i in measured]) for axis in range(3)]
        return residuals(columns, np.array([t / of[i] for i, t in measured.items()]))

    forward = {i: p.forward.seconds for i, p in enumerate(points)}
    backward = {i: p.backward.seconds for i, p in enumerate(points) if p.backward}
    return (
        around(forward, [one for one, _ in fitted]),
        around(backward, [two for _, two in fitted]),
    )


def _fitted_attention(machine: Machine, point: AttentionPoint) -> tuple[float, float]:
    """Seconds of forward and backward by the curve.

    Source: `fused_attention_seconds`; half of the square of the sequence is masked.
    """
    rows = np.array([float(point.micro_batch_size * point.num_heads)])
    columns = point.head_dim + point.value_dim
    seconds = fused_attention_seconds(
        machine,
        rows * point.seq_length**2 * columns,
        point.seq_length,
        (point.head_dim, point.value_dim),
        rows=rows,
        speed=1.0,
        calls=np.ones(1, dtype=np.int64),
    )
    return float(seconds.forward[0]), float(seconds.backward[0])


def inside_domain(
    points: Sequence[CollectivePoint], operation: str, size: int, domain_gpus: int
) -> list[CollectivePoint]:
    """Points of an operation on neighbours in one node, or in one scale-up domain of several."""
    return [
        p
        for p in points
        if (p.operation, p.ranks, p.stride) == (operation, size, 1)
        and (p.ranks == p.per_node or p.ranks <= domain_gpus)
    ]


def collective_residuals(
    machine: Machine, points: Sequence[CollectivePoint], curves: Mapping[str, CollectiveFit]
) -> Mapping[tuple[int, int], Residuals]:
    """What the profile's curves of collectives in one node leave, by operation and group size."""
    found = {}
    for row, operation in enumerate(OPERATIONS):
        for column, size in enumerate(GROUP_SIZES):
            mine = inside_domain(points, operation, size, machine.domain_gpus)
            if len(mine) < LEAST_POINTS or f"{operation}_{size}" not in curves:
                continue
            sent = np.array([float(p.num_bytes) for p in mine])
            bus = bus_factor(operation, np.array(size)) / machine.bus_bytes_per_second[row, column]
            fitted = machine.alpha_seconds[row, column] + sent * bus
            fitted = fitted + np.sqrt(sent) * machine.sqrt_coefficient[row, column]
            measured = np.array([p.time.seconds for p in mine])
            found[row, column] = residuals((sent,), measured / fitted)
    return found


def _optimizer_speed(points: Sequence[OptimizerPoint]) -> float | None:
    """Bytes per second of Adam at the largest size measured. Source: ADAM_STEP_BYTES."""
    mine = [p for p in points if p.place == "gpu"]
    if not mine:
        return None
    largest = max(mine, key=lambda p: p.num_params)
    return ADAM_STEP_BYTES * largest.num_params / largest.time.seconds


def _cpu_adam_speed(processes: int, points: Sequence[OptimizerPoint]) -> float | None:
    """Parameters per second of all processes of a measured node, each on its share of the cores."""
    rates = [p.num_params / p.time.seconds for p in points if p.place == "cpu"]
    return processes * median(rates) if rates else None


def _host_speed(machine: Machine, points: Sequence[CopyPoint]) -> float:
    """Bytes per second between one GPU and the host, the slower way, while most GPUs copy."""
    copies = [p for p in points if p.direction in ("host_to_device", "device_to_host")]
    if not copies:
        return machine.host_bytes_per_second
    most = max(p.concurrent for p in copies)
    largest = max(p.num_bytes for p in copies if p.concurrent == most)
    chosen = [p for p in copies if (p.concurrent, p.num_bytes) == (most, largest)]
    return min(p.num_bytes / p.time.seconds for p in chosen)


def _outside_bytes(points: Sequence[MemoryPoint]) -> float | None:
    """Context and communicators, where both were measured."""
    values = {p.name: p.value for p in points}
    if "context_bytes" not in values or "communicator_bytes" not in values:
        return None
    return values["context_bytes"] + values["communicator_bytes"]

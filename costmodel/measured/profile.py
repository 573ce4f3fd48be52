"""A machine as its profile says it is: what was measured stands beside the fitted curves.

The curves of a profile enter through `machine_of`; here come the residuals around them and the
speeds that are one number.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.documents import Constants
from trainplan.costmodel.hardware import ClusterSpec, FittedConstants
from trainplan.costmodel.job import LOW_PRECISION, Job, OptimizerSpec, Precision
from trainplan.costmodel.kernels import ADAM_STEP_BYTES
from trainplan.costmodel.machine import GemmRate, Machine, machine_of
from trainplan.costmodel.measured.counted import SHARED_LINK, shares_note
from trainplan.costmodel.measured.curve_residuals import (
    attention_residuals,
    collective_residuals,
    product_residuals,
    single_products,
    with_linear,
)
from trainplan.costmodel.measured.host import measured_host
from trainplan.costmodel.measured.shrink import shrunk
from trainplan.costmodel.measured.stragglers import speed_spread, straggler_per_doubling
from trainplan.costmodel.optimizers import ADAMW, Matrix
from trainplan.costmodel.profiles import (
    AttentionPoint,
    CollectivePoint,
    EndPoint,
    LayerPoint,
    MemoryPoint,
    OptimizerPoint,
    Point,
    ProductPoint,
    Profile,
    StreamPoint,
)
from trainplan.costmodel.traffic import step_seconds

PointT = TypeVar("PointT")


def measured_machine(
    cluster: ClusterSpec,
    precision: Precision,
    profile: Profile | None = None,
    constants: Constants | None = None,
    optimizer: OptimizerSpec | None = None,
) -> Machine:
    """The machine of a cluster, as a profile measured it as far as that is worth, if one is given.

    An optimizer that is not named is AdamW.

    Raises:
        PlanError: As `machine_of`.
    """
    fixed = constants or catalog.constants()
    if profile is None:
        return machine_of(cluster, precision, fixed)
    measured = _as_measured(cluster, precision, profile, fixed, optimizer)
    if profile.device is not None or profile.gpu not in catalog.gpu_names():
        return measured
    known = machine_of(cluster, precision, fixed, _nic_alone(cluster, profile))
    return shrunk(known, measured, profile, precision)


def _nic_alone(cluster: ClusterSpec, profile: Profile) -> Profile:
    """The profile without curves; its NIC is left where nobody else knows one."""
    stated = catalog.gpu(profile.gpu).nic_gb_per_s or any(group.nic for group in cluster.groups)
    nic = None if stated else profile.nic_gb_per_s
    return profile.model_copy(update={"fitted": FittedConstants(), "nic_gb_per_s": nic})


def _as_measured(
    cluster: ClusterSpec,
    precision: Precision,
    profile: Profile,
    fixed: Constants,
    optimizer: OptimizerSpec | None,
) -> Machine:
    """The machine as its points say, whatever they are worth."""
    points = profile.points
    values = {name: one.value for name, one in profile.constants.items()}
    spread = speed_spread(points)
    if spread is not None:
        values["straggler_per_doubling"] = straggler_per_doubling(spread, cluster.num_gpus)
    machine = machine_of(cluster, precision, fixed.model_copy(update=values), profile)
    others = with_linear(precision)
    half = _with_residuals(machine, machine.half, profile, others)
    low = precision in LOW_PRECISION
    linear = _with_residuals(machine, machine.linear, profile, (precision,)) if low else half
    machine = replace(machine, half=half, linear=linear)
    cores = [p for p in points_of(points, AttentionPoint) if p.precision in others]
    forward, backward = attention_residuals(machine, cores)
    updates = points_of(points, OptimizerPoint)
    machine = replace(
        machine,
        attention_residuals=forward,
        attention_backward_residuals=backward,
        collective_residuals=collective_residuals(
            machine, points_of(points, CollectivePoint), profile.fitted.collectives
        ),
        layers=_layers(profile, precision),
        ends=tuple(p for p in points_of(points, EndPoint) if p.precision == precision),
        optimizer_bytes_per_second=_optimizer_speed(updates),
        permute_bytes_per_second=_stream_speed(points, StreamPoint.PERMUTES),
        loss_bytes_per_second=_stream_speed(points, StreamPoint.LOSSES),
        outside_bytes=_outside_bytes(points_of(points, MemoryPoint)),
        unvalidated=bool(points),
        **measured_host(machine, profile, cluster),
    )
    return replace(machine, optimizer_slowness=_optimizer_slowness(machine, optimizer, updates))


def profile_notes(job: Job, profile: Profile) -> tuple[str, ...]:
    """What was measured, and where the job asks for more than that."""
    found = [f"measured: {origin.source}" for origin in profile.origins]
    if all(group.gpu == profile.gpu for group in job.cluster.groups):
        machine = measured_machine(job.cluster, job.training.precision, profile)
        found.extend(shares_note(machine, profile))
    nodes = job.cluster.num_nodes
    across = any(isinstance(p, CollectivePoint) and p.ranks > p.per_node for p in profile.points)
    if nodes > profile.num_nodes and across:
        found.append(
            f"measured on {profile.num_nodes} nodes, requested {nodes}: start times of collectives "
            "are assumed to grow with the logarithm of the nodes, the bandwidth of a NIC to hold"
        )
    elif nodes > profile.num_nodes:
        found.append(
            f"measured on {profile.num_nodes} node{'s' * (profile.num_nodes > 1)}, requested "
            f"{nodes}: links between nodes are assumed as in the catalog"
        )
    if job.training.precision not in {p.precision for p in points_of(profile.points, ProductPoint)}:
        found.append(
            f"no product was measured in {job.training.precision}: its speed is the catalog's"
        )
    stepped = {p.name for p in points_of(profile.points, OptimizerPoint) if p.place == "gpu"}
    optimizer = _stepped_as(job.training.optimizer)
    if ADAMW.name in stepped and optimizer not in stepped:
        found.append(f"no step of {optimizer} was measured: its bytes have the speed of AdamW's")
    return (*found, *profile.notes)


def points_of(points: Sequence[Point], kind: type[PointT]) -> list[PointT]:
    """Points of one sort, in order."""
    return [point for point in points if isinstance(point, kind)]


def _layers(profile: Profile, precision: Precision) -> tuple[LayerPoint, ...]:
    """Layers in one precision, without those whose traffic had a link alone that jobs share.

    Source: derived; n groups on one link take between once and n times as long as one of them, so
    what another tool timed in one group bounds a job from below, and sets no level.
    """
    link = (profile.device or catalog.gpu(profile.gpu)).link
    shared = link.startswith(SHARED_LINK)
    mine = [p for p in points_of(profile.points, LayerPoint) if p.precision == precision]
    return plausible([p for p in mine if not (shared and p.alone and p.collectives_inside)])


SAME_LAYER = (
    *("model", "moe", "runtime", "kernels", "attention", "precision", "tp", "ep", "seq_length"),
    *("sequence_parallel", "in_step", "collectives_inside", "alone"),
)
"""What two points of one layer, timed in one way, have in common."""


def plausible(layers: Sequence[LayerPoint]) -> tuple[LayerPoint, ...]:
    """Measured layers without those slower than the same layer on a larger micro batch.

    Whatever disturbs a measurement makes it longer, and more tokens never take less time.
    """

    def seconds(point: LayerPoint) -> float:
        parts = (point.forward, point.backward, point.both)
        return sum(one.seconds for one in parts if one)

    def same(one: LayerPoint, other: LayerPoint) -> bool:
        return all(getattr(one, name) == getattr(other, name) for name in SAME_LAYER)

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


def _with_residuals(
    machine: Machine, rate: GemmRate, profile: Profile, precisions: tuple[Precision, ...]
) -> GemmRate:
    bandwidth, constants = machine.memory_bytes_per_second, machine.constants
    extra, extra_weight = constants.expert_extra_rows, constants.expert_extra_rows_weight_gradient
    known = [p for p in points_of(profile.points, ProductPoint) if p.precision in precisions]
    fast = [p for p in known if p.groups == 1 and p.fast_accumulation]
    whole = [point for point in fast if point.recipe == "tensorwise"]
    rows = [point for point in fast if point.recipe != "tensorwise"]
    grouped = [point for point in known if point.groups > 1 and not point.weight_gradient]
    weights = [point for point in known if point.groups > 1 and point.weight_gradient]
    return replace(
        rate,
        residuals=product_residuals(bandwidth, rate, single_products(known, precisions)),
        fast=product_residuals(bandwidth, rate, whole),
        fast_rows=product_residuals(bandwidth, rate, rows),
        grouped=product_residuals(bandwidth, rate, grouped, extra),
        grouped_weight=product_residuals(bandwidth, rate, weights, extra_weight),
    )


def _optimizer_speed(points: Sequence[OptimizerPoint]) -> float | None:
    """Bytes per second of Adam at the largest size measured. Source: ADAM_STEP_BYTES."""
    mine = [p for p in points if p.place == "gpu" and p.name == ADAMW.name]
    if not mine:
        return None
    largest = max(mine, key=lambda p: p.num_params)
    return ADAM_STEP_BYTES * largest.num_params / largest.time.seconds


def _stepped_as(request: OptimizerSpec) -> str:
    """One that gives whole matrices to replicas steps as the one it is named after."""
    return request.name.removeprefix("dist-")


def _optimizer_slowness(
    machine: Machine, request: OptimizerSpec | None, points: Sequence[OptimizerPoint]
) -> float:
    """Measured over derived seconds of a step of square matrices in fp32, of the most parameters.

    Source: a step has one speed for all that it reads, writes and multiplies, as its times tell no
    parts of it.
    """
    if request is None:
        return 1.0
    name = _stepped_as(request)
    mine = [p for p in points if p.side and (p.place, p.name) == ("gpu", name)]
    if not mine:
        return 1.0
    largest = max(mine, key=lambda p: p.num_params)
    side = np.array(float(largest.side or 1))
    derived = float(step_seconds(machine, Matrix(side, side), request, BYTES_FP32))
    return largest.time.seconds / (largest.num_params / float(side) ** 2 * derived)


def _stream_speed(points: Sequence[Point], names: Sequence[str]) -> float | None:
    """Bytes per second of kernels of these names at the largest size measured, the slowest."""
    mine = [p for p in points_of(points, StreamPoint) if p.name in names]
    largest = max((p.moved_bytes for p in mine), default=0)
    speeds = [p.moved_bytes / p.time.seconds for p in mine if p.moved_bytes == largest]
    return min(speeds, default=None)


def _outside_bytes(points: Sequence[MemoryPoint]) -> float | None:
    """Context and communicators, where both were measured."""
    values = {p.name: p.value for p in points}
    if "context_bytes" not in values or "communicator_bytes" not in values:
        return None
    return values["context_bytes"] + values["communicator_bytes"]

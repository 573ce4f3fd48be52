"""Samples to curves, without the machine: what a profile's `fitted` and `constants` hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GB, MICROSECOND, TERA
from trainplan.costmodel.comm.collectives import hops_seconds, nic_share
from trainplan.costmodel.machine.hardware import (
    GROUP_SIZES,
    OPERATIONS,
    SHAPES,
    STRIDES,
    curve_name,
)
from trainplan.costmodel.measured.curve_residuals import inside_domain
from trainplan.costmodel.measured.profile import points_of
from trainplan.costmodel.spec.base import Sourced
from trainplan.costmodel.spec.evidence.profile import (
    LOSSES,
    PERMUTES,
    SHARDING,
    AttentionPoint,
    CollectivePoint,
    OverlapPoint,
    ProductPoint,
    Profile,
    StreamPoint,
)
from trainplan.costmodel.spec.gpu import (
    CPU,
    AttentionFit,
    CollectiveFit,
    FittedConstants,
    GemmFit,
    GpuSpec,
)
from trainplan.profiler.fit.curves import (
    LEAST_POINTS,
    backward_efficiency,
    fit_attention,
    fit_collective,
    fit_products,
    left_out,
    predict_collective,
    predict_products,
    relative_fit,
)

ERRATIC = 0.25
"""A collective whose sizes do not tell each other better than that is not one curve.

Source: recorded collectives of tests/replay: at most 0.20 where the network is sound, 0.54 to 0.63
where it is not (A10G over PCIe, 4 GPUs).
"""
FITTED = frozenset(
    {
        "alltoall_alpha",
        "attention_fixed_seconds",
        "attention_backward_efficiency",
        "elementwise_efficiency",
        "fsdp_contention",
        "inter_node_alpha",
        "launch_seconds",
        "overlap_contention",
        "overlap_window",
        "p2p_alpha",
    }
)
"""Constants that points give."""
TINY = 1e-12
"""Constants are positive: what a device does not have is a picosecond."""


@dataclass(slots=True)
class _FitResult:
    """Numbers as they are fitted."""

    spec: GpuSpec
    source: str
    gemm: dict[str, GemmFit] = field(default_factory=dict)
    collectives: dict[str, CollectiveFit] = field(default_factory=dict)
    attention: AttentionFit | None = None
    constants: dict[str, Sourced] = field(default_factory=dict)
    nic: Sourced | None = None
    scatter: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def said(self, count: int, what: str) -> str:
        """Source of a number."""
        return f"{self.source}, {count} {what}"

    def constant(self, name: str, value: float, count: int, what: str) -> None:
        """Set a constant of the formulas; what the points do not tell apart from nothing stays."""
        if value <= 0:
            return
        self.constants[name] = Sourced(value=value, source=self.said(count, what))


def fitted(profile: Profile, spec: GpuSpec) -> Profile:
    """The profile with all curves through its points; what was fitted before is replaced.

    `spec` are the datasheet numbers of its GPU. A curve the points do not identify is left out and
    a note says why.
    """
    found = _FitResult(spec, profile.origins[0].source)
    points = profile.points
    _products(found, points_of(points, ProductPoint))
    _attention(found, points_of(points, AttentionPoint))
    _collectives(found, points_of(points, CollectivePoint))
    _exchanges(found)
    _messages(found, points_of(points, CollectivePoint))
    _across(found, points_of(points, CollectivePoint))
    _streams(found, points_of(points, StreamPoint))
    _overlaps(found, [p for p in points_of(points, OverlapPoint) if p.operation in SHARDING])
    curves = FittedConstants(
        gemm=found.gemm, collectives=found.collectives, attention=found.attention
    )
    return profile.model_copy(
        update={
            "fitted": curves,
            "constants": {**_kept(profile), **found.constants},
            "nic_gb_per_s": found.nic,
            "scatter_fraction": found.scatter,
            "notes": tuple(dict.fromkeys((*profile.notes, *found.notes))),
        }
    )


def _kept(profile: Profile) -> Mapping[str, Sourced]:
    """Constants that no fit gives: those of a device without a GPU, those of other tools."""
    return {name: one for name, one in profile.constants.items() if name not in FITTED}


def _products(found: _FitResult, points: Sequence[ProductPoint]) -> None:
    for precision in sorted({p.precision for p in points}):
        mine = [p for p in points if p.precision == precision and p.groups == 1]
        mine = [p for p in mine if not p.fast_accumulation] or mine
        if precision not in found.spec.peak_tflops:
            found.notes.append(f"{precision} products: the peak of the GPU is not known")
            continue
        curve = fit_products(mine, found.spec, precision, found.said(len(mine), "products"))
        if curve is None:
            found.notes.append(
                f"{precision} products: {len(mine)} measured, a curve needs {LEAST_POINTS}"
            )
            continue
        found.gemm[precision] = curve
        scatter = left_out(
            mine,
            lambda kept, asked, p=precision: predict_products(kept, found.spec, p, asked),  # type: ignore[misc]
        )
        if np.isfinite(scatter):
            found.scatter[f"{precision} products"] = scatter


def _attention(found: _FitResult, points: Sequence[AttentionPoint]) -> None:
    """The curve of the precision with most points, and the speed of the backward pass."""
    precisions = [p.precision for p in points if p.precision in found.spec.peak_tflops]
    if not precisions:
        return
    precision = max(sorted(set(precisions)), key=precisions.count)
    mine = [p for p in points if p.precision == precision]
    peak = found.spec.peak_tflops[precision].value * TERA
    curve = fit_attention(mine, peak, found.spec.architecture)
    if curve is None:
        found.notes.append(
            f"attention: {LEAST_POINTS} sequence lengths are needed for a curve; other lengths "
            "follow the catalog's"
        )
        return
    efficiency, half, start = curve
    found.attention = AttentionFit(
        max_efficiency=efficiency, half_length=half, source=found.said(len(mine), "forward passes")
    )
    found.constant("attention_fixed_seconds", start, len(mine), "forward passes")
    backward = backward_efficiency(mine)
    if backward is not None:
        found.constant("attention_backward_efficiency", backward, len(mine), "backward passes")


def _collectives(found: _FitResult, points: Sequence[CollectivePoint]) -> None:
    for operation in OPERATIONS:
        for size, stride in SHAPES:
            name = curve_name(operation, size, stride)
            mine = inside_domain(points, name, found.spec.nvlink_domain)
            curve = _curve(found, name, mine)
            if curve is None:
                continue
            scatter = left_out(mine, predict_collective)
            if scatter > ERRATIC:
                found.notes.append(
                    f"{name}: its sizes contradict each other by {scatter:.0%}, so it is not used"
                )
                continue
            found.collectives[name] = curve
            if np.isfinite(scatter):
                found.scatter[name] = scatter


def _curve(found: _FitResult, name: str, mine: Sequence[CollectivePoint]) -> CollectiveFit | None:
    """The curve through some points; null where there are none, or with a note what is wrong."""
    if not mine:
        return None
    curve, why = fit_collective(mine, found.said(len(mine), "sizes"))
    if curve is None:
        found.notes.append(f"{name}: {why}")
    return curve


def _exchanges(found: _FitResult) -> None:
    """Start of an exchange among experts: the split sizes go first, an all-to-all of their own.

    Source: `alltoall_alpha` of `Constants`, twice the start; of the largest group measured.
    """
    for size in reversed(GROUP_SIZES):
        curve = found.collectives.get(curve_name("alltoall", size))
        if curve:
            what = f"starts of an all-to-all on {size} GPUs"
            found.constant("alltoall_alpha", 2 * curve.alpha_us * MICROSECOND, 2, what)
            return


def _messages(found: _FitResult, points: Sequence[CollectivePoint]) -> None:
    """Start and bandwidth of messages between two GPUs of a node, and how far apart they are."""
    inside = [p for p in points if p.per_node == p.ranks]
    for stride in STRIDES:
        name = curve_name("p2p", 2, stride)
        mine = inside_domain(inside, name, found.spec.nvlink_domain)
        curve = _curve(found, name, mine)
        if curve is None:
            continue
        found.collectives[name] = curve
        if "p2p_alpha" not in found.constants:
            found.constant("p2p_alpha", curve.alpha_us * MICROSECOND, len(mine), "messages")


def _across(found: _FitResult, points: Sequence[CollectivePoint]) -> None:
    """Bandwidth of a GPU between scale-up domains, and what a collective starts with.

    How starts grow with the nodes stays as in the catalog: one run has one number of nodes.
    Source: as `costmodel.comm.collectives.collective_rate`: all members of a node send together.
    """
    domain = found.spec.nvlink_domain
    mine = [
        p
        for p in points
        if p.ranks > p.per_node and p.ranks * p.stride > domain and p.operation in OPERATIONS
    ]
    if not mine:
        return
    constants = catalog.constants()
    shares = [nic_share(p.operation, np.array(p.ranks), np.array(p.per_node)) for p in mine]
    wire = np.array([p.num_bytes * float(one) for p, one in zip(mine, shares, strict=True)]) / GB
    nodes = np.array([p.ranks / p.per_node for p in mine])
    grown = np.array(
        [
            float(hops_seconds(constants, p.operation, np.array(p.ranks), count))
            for p, count in zip(mine, nodes, strict=True)
        ]
    )
    seconds = np.array([p.time.seconds for p in mine])
    columns = np.stack([np.full(len(mine), MICROSECOND), wire], axis=1)
    start, per_gb = relative_fit(columns, np.maximum(seconds - grown, seconds / 2))
    if per_gb <= 0:
        found.notes.append("collectives across nodes: latency only, larger messages are needed")
        return
    what = "collectives across nodes"
    found.nic = Sourced(value=float(1 / per_gb), source=found.said(len(mine), what))
    found.constant("inter_node_alpha", float(start) * MICROSECOND, len(mine), what)


def _streams(found: _FitResult, points: Sequence[StreamPoint]) -> None:
    """Start of a small kernel, and the share of memory bandwidth of kernels without reuse."""
    points = [p for p in points if p.name not in (*PERMUTES, *LOSSES)]
    if len({p.moved_bytes for p in points}) < LEAST_POINTS:
        if points:
            found.notes.append(f"kernels: {LEAST_POINTS} sizes are needed for a curve")
        return
    moved = np.array([float(p.moved_bytes) for p in points])
    columns = np.stack([np.full(len(points), MICROSECOND), moved / GB], axis=1)
    start, per_gb = relative_fit(columns, np.array([p.time.seconds for p in points]))
    if per_gb <= 0:
        found.notes.append("kernels: time does not grow with size, no bandwidth can be told")
        return
    efficiency = 1 / per_gb / found.spec.memory_gb_per_s.value
    found.constant("elementwise_efficiency", efficiency, len(points), "kernels")
    found.constant("launch_seconds", start * MICROSECOND, len(points), "kernels")


def _overlaps(found: _FitResult, points: Sequence[OverlapPoint]) -> None:
    """Seconds that compute loses for every second of data-parallel traffic hidden behind it.

    Gradients in buckets and gathered weights are the same kernels, so both constants are this one
    number; no more is lost than the traffic takes. On a CPU no more of the buckets is hidden than
    goes on in that time.
    Source: derived; compute of C seconds takes s C, in which traffic does s C / r of its seconds,
    so it loses (s - 1) r / s for each.
    """
    if not points:
        return
    lost = [
        (p.compute_slowdown - 1) * p.communication_slowdown / p.compute_slowdown for p in points
    ]
    on_cpu = found.spec.vendor == CPU
    share = max(TINY if on_cpu else 0.0, min(1.0, float(np.median(lost))))
    for name in ("fsdp_contention", "overlap_contention"):
        found.constant(name, share, len(points), "overlaps")
    if on_cpu:
        hidden = [p.compute_slowdown / p.communication_slowdown for p in points]
        window = min(1.0, float(np.median(hidden)))
        found.constant("overlap_window", window, len(points), "overlaps")

"""Samples to curves, without the machine: what a profile's `fitted` and `constants` hold."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from trainplan.costmodel.base import GB, MICROSECOND, TERA
from trainplan.costmodel.hardware import CPU, AttentionFit, FittedConstants, GpuSpec
from trainplan.costmodel.measured import CONSTANTS, points_of, single_products
from trainplan.costmodel.profiles import (
    AttentionPoint,
    CollectivePoint,
    OverlapPoint,
    ProductPoint,
    Profile,
    StreamPoint,
)
from trainplan.costmodel.spec import Sourced
from trainplan.profiler.fit.curves import (
    LEAST_POINTS,
    backward_efficiency,
    fit_attention,
    fit_products,
    left_out,
    predict_products,
    relative_fit,
)
from trainplan.profiler.fit.links import fit_links
from trainplan.profiler.fit.result import FitResult

OVERLAPS = ("fsdp_contention", "overlap_contention", "overlap_window")
FITTED = frozenset(chain(*CONSTANTS.values(), OVERLAPS))
"""Constants that points give."""
TINY = 1e-12
"""Constants are positive: what a device does not have is a picosecond."""


def fitted(profile: Profile, spec: GpuSpec) -> Profile:
    """The profile with all curves through its points; what was fitted before is replaced.

    `spec` are the datasheet numbers of its GPU. A curve the points do not identify is left out and
    a note says why.
    """
    found = FitResult(spec, profile.origins[0].source)
    points = profile.points
    _products(found, points_of(points, ProductPoint))
    _attention(found, points_of(points, AttentionPoint))
    fit_links(found, points_of(points, CollectivePoint))
    _streams(found, points_of(points, StreamPoint))
    _overlaps(
        found, [p for p in points_of(points, OverlapPoint) if p.operation in OverlapPoint.SHARDING]
    )
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


def _products(found: FitResult, points: Sequence[ProductPoint]) -> None:
    for precision in sorted({p.precision for p in points}):
        mine = single_products(points, (precision,))
        if precision not in found.spec.peak_tflops:
            found.notes.append(f"{precision} products: the peak of the GPU is not known")
            continue
        curve = fit_products(mine, found.spec, precision, found.source_of(len(mine), "products"))
        if curve is None:
            found.notes.append(
                f"{precision} products: {len(mine)} measured, a curve needs {LEAST_POINTS}"
            )
            continue
        found.gemm[precision] = curve
        scatter = left_out(
            mine,
            lambda kept, request, p=precision: predict_products(kept, found.spec, p, request),  # type: ignore[misc]
        )
        if np.isfinite(scatter):
            found.scatter[f"{precision} products"] = scatter


def _attention(found: FitResult, points: Sequence[AttentionPoint]) -> None:
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
        max_efficiency=efficiency,
        half_length=half,
        source=found.source_of(len(mine), "forward passes"),
    )
    found.constant("attention_fixed_seconds", start, len(mine), "forward passes")
    backward = backward_efficiency(mine)
    if backward is not None:
        found.constant("attention_backward_efficiency", backward, len(mine), "backward passes")


def _streams(found: FitResult, points: Sequence[StreamPoint]) -> None:
    """Start of a small kernel, and the share of memory bandwidth of kernels without reuse."""
    points = [p for p in points if p.name not in (*StreamPoint.PERMUTES, *StreamPoint.LOSSES)]
    if len({p.moved_bytes for p in points}) < LEAST_POINTS:
        if points:
            found.notes.append(f"kernels: {LEAST_POINTS} sizes are needed for a curve")
        return
    moved = np.array([float(p.moved_bytes) for p in points])
    columns = np.stack([np.full(len(points), MICROSECOND), moved / GB], axis=1)
    start, per_gb = relative_fit(columns, np.array([p.time.seconds for p in points]))
    if per_gb <= 0:
        found.notes.append("kernels: time does not grow with size, no bandwidth can be fitted")
        return
    efficiency = 1 / per_gb / found.spec.memory_gb_per_s.value
    found.constant("elementwise_efficiency", efficiency, len(points), "kernels")
    found.constant("launch_seconds", start * MICROSECOND, len(points), "kernels")


def _overlaps(found: FitResult, points: Sequence[OverlapPoint]) -> None:
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

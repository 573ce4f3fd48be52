"""Curves through measured points, and how well they tell a point they have not seen.

Every curve is fitted on relative errors, so that a microsecond and a second count alike, and least
absolute ones, so that one odd sample does not bend it. What the points do not identify is refused.
Source of the forms: `costmodel.kernels` and `costmodel.comm.collectives`.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np

from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32, GB, MICROSECOND, TERA
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import bus_factor
from trainplan.costmodel.hardware import CollectiveFit, GemmFit, GpuSpec
from trainplan.costmodel.job import Precision
from trainplan.costmodel.kernels import ATTENTION_BACKWARD_FLOP, fused_slowness
from trainplan.costmodel.machine import GemmRate, element_bytes
from trainplan.costmodel.measured import (
    attention_flop,
    collective_residual,
    collective_seconds_on,
    on_curve,
    product_residuals,
    products,
)
from trainplan.costmodel.profiles import AttentionPoint, CollectivePoint, ProductPoint

ROUNDS = 30
"""Rounds of reweighting; the fits of the recorded samples move by less than 0.1 % after 20."""
LEAST_POINTS = 3
"""A curve of three numbers needs as many points.

Source: three unknowns take three equations: fewer points leave one of the numbers free to be
anything.
"""
LATENCY_ONLY = 4.0
"""A slope counts only if the largest message takes that many times the smallest. Source: derived;
at 4 the start is a quarter of it, so an error of 5 % in the start moves the slope by 2 %."""
FOLDS = 12
"""Parts in which points are left out, to keep it under a second."""
Timed = TypeVar("Timed", ProductPoint, CollectivePoint)


def relative_fit(
    columns: FloatColumn, seconds: FloatColumn, needed: tuple[int, ...] = ()
) -> FloatColumn:
    """Non-negative weights of `columns` (points x terms) with the least relative errors.

    Terms that are `needed` have a weight above zero.
    Source: derived; least absolute errors by reweighting, of all sets of terms with no negative
    weight the best (there are at most seven).
    """
    scaled = columns / seconds[:, None]
    best, least = np.zeros(columns.shape[1]), np.inf
    terms = range(columns.shape[1])
    for size in range(1, columns.shape[1] + 1):
        for chosen in combinations(terms, size):
            if not set(needed) <= set(chosen):
                continue
            weights = _least_absolute(scaled[:, chosen])
            if (weights < 0).any():
                continue
            error = float(np.abs(scaled[:, chosen] @ weights - 1).sum())
            if error < least * (1 - 1e-9):
                best, least = np.zeros(columns.shape[1]), error
                best[list(chosen)] = weights
    return best


def _least_absolute(scaled: FloatColumn) -> FloatColumn:
    sizes = np.abs(scaled).max(axis=0)
    columns = scaled / sizes
    weight = np.ones(len(scaled))
    solution = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        root = np.sqrt(weight)
        solution = np.linalg.lstsq(columns * root[:, None], root, rcond=None)[0]
        weight = 1 / np.maximum(np.abs(columns @ solution - 1), 1e-3)
    return np.asarray(solution / sizes)


def gemm_rate(spec: GpuSpec, precision: Precision, found: GemmFit) -> GemmRate:
    """A curve as the cost model reads it."""
    return GemmRate(
        peak_flop_per_second=spec.peak_tflops[precision].value * TERA,
        fixed_seconds=found.fixed_us * MICROSECOND,
        flop_factor=found.flop_factor,
        byte_factor=found.byte_factor,
        element_bytes=element_bytes(precision),
    )


def fit_products(
    points: Sequence[ProductPoint], spec: GpuSpec, precision: Precision, source: str
) -> GemmFit | None:
    """Additive roofline through single products; null where the points are too few.

    Source: form of `costmodel.kernels.roofline_seconds`.
    """
    if len(points) < LEAST_POINTS:
        return None
    shape = products(points)
    wide = np.array([p.weight_gradient for p in points])
    unit = gemm_rate(spec, precision, GemmFit(fixed_us=0, flop_factor=0, byte_factor=0, source=""))
    inner = max(BYTES_BF16, unit.element_bytes)
    output = np.where(wide, BYTES_FP32, inner)
    moved = unit.element_bytes * (shape.m * shape.k + shape.k * shape.n)
    moved = moved + output * shape.m * shape.n
    flop = 2 * shape.m * shape.n * shape.k / unit.peak_flop_per_second
    columns = np.stack(
        [np.full(len(points), MICROSECOND), flop, moved / (spec.memory_gb_per_s.value * GB)], axis=1
    )
    start, flops, reads = relative_fit(columns, _seconds(points), needed=(1,))
    return GemmFit(
        fixed_us=float(start), flop_factor=float(flops), byte_factor=float(reads), source=source
    )


def predict_products(
    points: Sequence[ProductPoint],
    spec: GpuSpec,
    precision: Precision,
    wanted: Sequence[ProductPoint],
) -> FloatColumn:
    """Seconds of other products, from the curve through `points` and what it leaves of them.

    Source: as `fit_products` and `costmodel.measured.curve_residuals.product_residuals`.
    """
    found = fit_products(points, spec, precision, "")
    assert found is not None
    rate, bandwidth = gemm_rate(spec, precision, found), spec.memory_gb_per_s.value * GB
    on_the_curve = on_curve(bandwidth, rate, wanted)
    left = product_residuals(bandwidth, rate, points)
    return on_the_curve.seconds * (left.factor(*on_the_curve.sizes) if left else 1.0)


def left_out(
    points: Sequence[Timed],
    predict: Callable[[Sequence[Timed], Sequence[Timed]], FloatColumn],
    folds: int = FOLDS,
) -> float:
    """Median of |predicted / measured - 1|, each point predicted without itself and its fold.

    NaN where too few points are left to predict any.

    Source: a point judges a curve that was fitted without it; folds in place of single points keep
    that under a second.
    """
    errors: list[float] = []
    count = min(folds, len(points))
    for fold in range(count):
        kept = [p for i, p in enumerate(points) if i % count != fold]
        wanted = [p for i, p in enumerate(points) if i % count == fold]
        if len(kept) >= LEAST_POINTS:
            errors += list(np.abs(predict(kept, wanted) / _seconds(wanted) - 1))
    return float(np.median(errors)) if errors else float("nan")


def _seconds(points: Sequence[ProductPoint] | Sequence[CollectivePoint]) -> FloatColumn:
    return np.array([point.time.seconds for point in points])


def fit_collective(
    points: Sequence[CollectivePoint], source: str = ""
) -> tuple[CollectiveFit | None, str]:
    """Start, bandwidth and root term of one collective in one size of group, and why not.

    Source: alpha + B / bandwidth + c sqrt(B), `costmodel.comm.collectives.Rate`.
    """
    if len(points) < LEAST_POINTS:
        return None, f"{len(points)} sizes, a curve needs {LEAST_POINTS}"
    first = points[0]
    sent = np.array([float(p.num_bytes) for p in points])
    seconds = _seconds(points)
    if seconds[np.argmax(sent)] < LATENCY_ONLY * seconds.min():
        return None, "latency only: larger messages are needed for a bandwidth"
    factor = float(bus_factor(first.operation, np.array(first.ranks)))
    columns = np.stack([np.full(len(sent), MICROSECOND), sent * factor / GB, np.sqrt(sent)], axis=1)
    start, per_gb, root = relative_fit(columns, seconds)
    if per_gb <= 0:
        return None, "no bandwidth can be fitted: time does not grow with size"
    curve = CollectiveFit(
        alpha_us=float(start),
        bus_gb_per_s=float(1 / per_gb),
        sqrt_coefficient=float(root),
        source=source,
    )
    return curve, ""


def predict_collective(
    points: Sequence[CollectivePoint], wanted: Sequence[CollectivePoint]
) -> FloatColumn:
    """Seconds of other sizes: the curve through `points`, and what it leaves of its neighbours.

    Source: as `fit_collective` and `costmodel.residuals`.
    """
    curve, _ = fit_collective(points)
    if curve is None:
        return np.full(len(wanted), np.median(_seconds(points)))
    sizes = np.array([float(p.num_bytes) for p in wanted])
    return collective_seconds_on(curve, wanted) * collective_residual(curve, points).factor(sizes)


def fit_attention(
    points: Sequence[AttentionPoint], peak_flop_per_second: float, architecture: str
) -> tuple[float, float, float] | None:
    """Largest efficiency, half length and start of the fused core forward; null: not identified.

    Source: t = start + F / peak (1 + half / s) / e, `kernels.fused_attention_seconds`.
    """
    slower = [fused_slowness(architecture, (p.head_dim, p.value_dim)) for p in points]
    flop = np.array([attention_flop(p) for p in points]) * slower / peak_flop_per_second
    lengths = np.array([float(p.seq_length) for p in points])
    seconds = np.array([p.forward.seconds for p in points])
    if len(set(lengths)) < LEAST_POINTS:
        return None
    columns = np.stack([np.full(len(points), MICROSECOND), flop, flop / lengths], axis=1)
    start, inverse, slope = relative_fit(columns, seconds)
    if inverse <= 0:
        return None
    return float(1 / inverse), float(slope / inverse), float(start * MICROSECOND)


def backward_efficiency(points: Sequence[AttentionPoint]) -> float | None:
    """Speed of the backward over that of the forward kernel; null where no backward was measured.

    Source: time is FLOP over speed, so the ratio of speeds is that of FLOP,
    `ATTENTION_BACKWARD_FLOP`, over that of times.
    """
    ratios = [
        ATTENTION_BACKWARD_FLOP * p.forward.seconds / p.backward.seconds
        for p in points
        if p.backward
    ]
    return float(np.median(ratios)) if ratios else None

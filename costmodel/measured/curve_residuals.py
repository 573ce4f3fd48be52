"""What the curves of a machine leave of its measured points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32, GB, MICROSECOND
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import bus_factor
from trainplan.costmodel.hardware import CollectiveFit
from trainplan.costmodel.job import FULL_WIDTH, Precision
from trainplan.costmodel.kernels import Product, fused_attention_seconds, roofline_seconds
from trainplan.costmodel.machine import (
    OPERATIONS,
    SHAPES,
    GemmRate,
    Machine,
    curve_name,
    nearest_stride,
)
from trainplan.costmodel.profiles import AttentionPoint, CollectivePoint, Point, ProductPoint
from trainplan.costmodel.residuals import Residuals, residuals

LEAST_POINTS = 3
"""Fewer points say nothing about the shape of what a curve leaves.

Source: through two points goes a line that leaves nothing, so a third is the first that can tell a
trend from scatter.
"""
COLLECTIVE_NUGGET = 0.01
"""Variance of one size's own error over that of what its curve leaves.

Source: derived; repeated calls agree within 1 to 2 %, curves leave 10 to 20 %. On 126 recorded sets
of A100, H100, H200 and B200 (and of each alone) the error of a size left out is the same at 0.001
to 0.02, and a tenth higher at 0.15 (examples/profile_fits).
"""


def with_linear(precision: Precision) -> tuple[Precision, ...]:
    """Precisions that tell of products outside linear layers: one of full width, else either half.

    Source: tensor cores multiply bf16 and fp16 at one rate; datasheets of `GpuSpec.peak_tflops`.
    """
    return (precision,) if precision in FULL_WIDTH else ("bf16", "fp16")


def single_products(
    points: Sequence[Point], precisions: Sequence[Precision]
) -> Sequence[ProductPoint]:
    """Products that curves go through: single ones with sums in fp32; others where none has them.

    Source: `ProductPoint.fast_accumulation`; some GPUs know one way alone.
    """
    known = [p for p in points if isinstance(p, ProductPoint) and p.precision in precisions]
    single = [p for p in known if p.groups == 1]
    return [p for p in single if not p.fast_accumulation] or single


def products(points: Sequence[ProductPoint], extra_rows: float = 0.0) -> Product:
    """Measured products as columns, the groups of one kernel together.

    Source: derived; each group costs some rows beyond its own, and a grouped weight gradient counts
    as the product whose weight it is of, both as in `costmodel.blocks.feed_forward.products`.
    """
    rows = [_sizes(point, extra_rows) for point in points]
    m, n, k = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return Product(m, n, k)


def _sizes(point: ProductPoint, extra_rows: float) -> tuple[float, float, float]:
    if point.groups == 1:
        return point.m, point.n, point.k
    m, n, k = (point.k, point.n, point.m) if point.weight_gradient else (point.m, point.n, point.k)
    return point.groups * (m + extra_rows), n, k


@dataclass(frozen=True, slots=True)
class OnCurve:
    """Measured products, and how long the curve of their precision says they take."""

    sizes: tuple[FloatColumn, ...]
    """Rows, columns, inner size and bytes of an output element: what `Residuals` go by."""
    seconds: FloatColumn


def on_curve(
    memory_bytes_per_second: float,
    rate: GemmRate,
    points: Sequence[ProductPoint],
    extra_rows: float = 0.0,
) -> OnCurve:
    """Products on the curve; only single weight gradients write fp32.

    Source: `roofline_seconds`.
    """
    shapes = products(points, extra_rows)
    wide = np.array([point.weight_gradient and point.groups == 1 for point in points])
    narrow = max(BYTES_BF16, rate.element_bytes)
    seconds = np.where(
        wide,
        roofline_seconds(memory_bytes_per_second, rate, shapes, BYTES_FP32),
        roofline_seconds(memory_bytes_per_second, rate, shapes, narrow),
    )
    output = np.where(wide, BYTES_FP32, narrow).astype(float)
    return OnCurve((shapes.m, shapes.n, shapes.k, output), seconds)


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
    fitted = on_curve(memory_bytes_per_second, rate, points, extra_rows)
    measured = np.array([point.time.seconds for point in points])
    return residuals(fitted.sizes, measured / fitted.seconds)


def attention_residuals(
    machine: Machine, points: Sequence[AttentionPoint]
) -> tuple[Residuals | None, Residuals | None]:
    """What the curve of fused attention leaves of its points, forward and backward."""
    fitted = [fitted_attention(machine, point) for point in points]
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


def fitted_attention(machine: Machine, point: AttentionPoint) -> tuple[float, float]:
    """Seconds of forward and backward by the curve. Source: `fused_attention_seconds`."""
    rows = np.array([float(point.micro_batch_size * point.num_heads)])
    seconds = fused_attention_seconds(
        machine,
        np.array([attention_flop(point)]),
        point.seq_length,
        (point.head_dim, point.value_dim),
        rows=rows,
        speed=1.0,
        calls=np.ones(1, dtype=np.int64),
    )
    return float(seconds.forward[0]), float(seconds.backward[0])


def attention_flop(point: AttentionPoint) -> float:
    """Forward FLOPs of a measured core; half of the square of the sequence is masked.

    Source: Dao, FlashAttention-2, arXiv:2307.08691, section 4.1.
    """
    columns = point.head_dim + point.value_dim
    return float(point.micro_batch_size * point.num_heads * point.seq_length**2 * columns)


def inside_domain(
    points: Sequence[CollectivePoint], name: str, domain_gpus: int
) -> list[CollectivePoint]:
    """Points of one curve: of groups in one node, or in one scale-up domain of several."""
    return [
        p
        for p in points
        if curve_name(p.operation, p.ranks, p.stride) == name
        and (p.ranks == p.per_node or p.ranks * p.stride <= domain_gpus)
    ]


def collective_residuals(
    machine: Machine, points: Sequence[CollectivePoint], curves: Mapping[str, CollectiveFit]
) -> Mapping[tuple[int, int], Residuals]:
    """What the profile's curves of collectives in one node leave, by operation and shape."""
    left = {}
    for name, curve in curves.items():
        mine = inside_domain(points, name, machine.domain_gpus)
        if len(mine) >= LEAST_POINTS:
            left[name] = collective_residual(curve, mine)
    found = {}
    for row, operation in enumerate(OPERATIONS):
        for column, (size, stride) in enumerate(SHAPES):
            near = nearest_stride(curves, operation, size, stride)
            if near and (name := curve_name(operation, size, near)) in left:
                found[row, column] = left[name]
    return found


def collective_residual(curve: CollectiveFit, points: Sequence[CollectivePoint]) -> Residuals:
    """What the curve of one collective leaves of its sizes. Source: `Residuals` over bytes."""
    sent = np.array([float(p.num_bytes) for p in points])
    measured = np.array([p.time.seconds for p in points])
    ratios = measured / collective_seconds_on(curve, points)
    return residuals((sent,), ratios, nugget=COLLECTIVE_NUGGET)


def collective_seconds_on(curve: CollectiveFit, points: Sequence[CollectivePoint]) -> FloatColumn:
    """Seconds of points of one collective in groups of one size, as its curve says.

    Source: alpha + B / bandwidth + c sqrt(B), `costmodel.comm.collectives.Rate`.
    """
    first = points[0]
    sent = np.array([float(p.num_bytes) for p in points])
    factor = bus_factor(first.operation, np.array(first.ranks))
    line = curve.alpha_us * MICROSECOND + sent * factor / (curve.bus_gb_per_s * GB)
    return np.asarray(line + curve.sqrt_coefficient * np.sqrt(sent))

"""How well curves through some recorded points tell the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.hardware.gpu import GpuSpec
from trainplan.costmodel.profiles.profile import CollectivePoint, ProductPoint, Timing
from trainplan.profiler.bench.inputs.shapes import candidates, caps, most_telling, places
from trainplan.profiler.fit.curves import (
    fit_collective,
    left_out,
    predict_collective,
    predict_products,
)

LEAST_ROWS = 512
"""Fewer rows are decoding, which training does not do."""
COUNTS = (96, 12)


@dataclass(frozen=True, slots=True)
class Products:
    """A recorded table of bf16 products."""

    sizes: IntColumn
    """Shape (products, 3): rows, columns and inner size."""
    seconds: FloatColumn

    def of(self, rows: IntColumn) -> list[ProductPoint]:
        """Some of them as points."""
        return [
            ProductPoint(m=m, n=n, k=k, time=Timing(seconds=seconds))
            for (m, n, k), seconds in zip(
                self.sizes[rows].tolist(), self.seconds[rows].tolist(), strict=True
            )
        ]


@dataclass(frozen=True, slots=True)
class Score:
    """Median errors of one table, as fractions."""

    inside: tuple[float, ...]
    """Of products in the range of the spread ones, for each of `COUNTS`."""
    beyond: tuple[float, ...]
    """Of all others with enough rows, by the same curves."""
    noise: float
    """Of products told by those with the next smaller and larger inner size in the same table."""


def score(table: Products, spec: GpuSpec) -> Score:
    """Curves through the products that the profiler would choose, judged by all others."""
    stated, beyond = [], []
    ranged = in_range(table.sizes)
    for count in COUNTS:
        kept = spread(table.sizes, count)
        unseen = np.ones(len(table.sizes), dtype=bool)
        unseen[kept] = False
        stated.append(_error(table, spec, kept, np.flatnonzero(ranged & unseen)))
        enough = table.sizes[:, 0] >= LEAST_ROWS
        beyond.append(_error(table, spec, kept, np.flatnonzero(~ranged & enough)))
    return Score(tuple(stated), tuple(beyond), noise(table))


def in_range(sizes: IntColumn) -> BoolColumn:
    """Is a product as large as those the profiler spreads out, in each size and in work?"""
    spread_out = list(candidates("cuda"))
    least = 2 ** places(spread_out).min(axis=0)
    work = 2.0 * sizes.prod(axis=1, dtype=float)
    small = work < min(shape.flop for shape in spread_out)
    large = work > caps("cuda", quick=False).flop
    return np.asarray((sizes >= least).all(axis=1) & ~small & ~large)


def spread(sizes: IntColumn, count: int) -> IntColumn:
    """Rows of the table that the profiler would measure, were there no others."""
    limit = caps("cuda", quick=False)
    wanted = {(s.m, s.n, s.k) for s in candidates("cuda") if s.fits(limit)}
    rows = [row for row, size in enumerate(sizes.tolist()) if tuple(size) in wanted]
    rows.sort(key=lambda row: tuple(sizes[row]))
    here = np.log2(sizes[rows])
    return np.array(rows)[most_telling(here, here[:0], count)]


def _error(table: Products, spec: GpuSpec, kept: IntColumn, request: IntColumn) -> float:
    if not len(request):
        return float("nan")
    predicted = predict_products(table.of(kept), spec, "bf16", table.of(request))
    return float(np.median(np.abs(predicted / table.seconds[request] - 1)))


def noise(table: Products) -> float:
    """What the table does not know of itself: time grows evenly with the inner size."""
    use = in_range(table.sizes)
    lines: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for (m, n, k), seconds in zip(table.sizes[use].tolist(), table.seconds[use], strict=True):
        lines.setdefault((m, n), []).append((k, seconds))
    errors = [error for line in lines.values() for error in between(line)]
    return float(np.median(errors)) if errors else float("nan")


def between(line: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Errors of points on a line told by their two neighbours, straight in logarithms."""
    size, seconds = np.log(np.array(sorted(line))).T
    share = (size[1:-1] - size[:-2]) / (size[2:] - size[:-2])
    stated = (1 - share) * seconds[:-2] + share * seconds[2:]
    yield from np.abs(np.exp(stated - seconds[1:-1]) - 1).tolist()


@dataclass(frozen=True, slots=True)
class Messages:
    """A recorded collective in groups of one size: bytes of the full tensor, and seconds."""

    operation: str
    ranks: int
    line: tuple[tuple[float, float], ...]


def points(messages: Messages) -> list[CollectivePoint]:
    """Its sizes as points."""
    return [
        CollectivePoint.model_validate(
            {
                "operation": messages.operation,
                "ranks": messages.ranks,
                "per_node": messages.ranks,
                "num_bytes": int(num_bytes),
                "time": Timing(seconds=seconds),
            }
        )
        for num_bytes, seconds in messages.line
    ]


def stated_in_turn(messages: Messages) -> float:
    """Median error of each size told by all others; infinite where they identify no curve."""
    mine = points(messages)
    curve, _ = fit_collective(mine)
    return left_out(mine, predict_collective, len(mine)) if curve else float("inf")


def stated_by(messages: Messages, sizes: Sequence[int]) -> float:
    """Median error of other sizes told by these alone; infinite where they identify no curve."""
    mine = points(messages)
    kept = [point for point in mine if point.num_bytes in sizes]
    request = [point for point in mine if point.num_bytes not in sizes]
    curve, _ = fit_collective(kept)
    if not curve or not request:
        return float("inf")
    seconds = np.array([point.time.seconds for point in request])
    return float(np.median(np.abs(predict_collective(kept, request) / seconds - 1)))

"""What a fitted curve leaves: measured over fitted seconds, interpolated between points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn

REACH_OCTAVES = 2.0
"""Distance over which neighbours resemble each other. Source: `measured`, median errors at 2, 4, 8
and 16 octaves on 400 products each of A100, H100 and H200 differ by less than a point, and so do
those at a NUGGET of 0.02 to 0.5 (ai-dynamo/aiconfigurator@095f58a5)."""
MOST_POINTS = 1000
"""More points are thinned out evenly: solving for them takes their number cubed."""
NUGGET = 0.15
"""Variance of one point's own error over that of the residuals. Source: as REACH_OCTAVES."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """Simple kriging of log(measured / fitted) in log space, exact but for the nugget.

    Far from all points the factor is `exp(level)`.
    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.2,
    exponential covariance (section 4.2.1).
    """

    positions: FloatColumn
    """Shape (points, dimensions), log2 of the sizes."""
    weights: FloatColumn
    level: float

    def shrunk(self, share: float, level: float | None = None) -> Residuals:
        """The same with a share of every factor's logarithm, and another level if one is given.

        Source: derived; the factor is the exponential of level and weights, so both scale.
        """
        far = share * self.level if level is None else level
        return Residuals(self.positions, share * self.weights, far)

    def factor(self, *sizes: FloatColumn) -> FloatColumn:
        """Measured over fitted seconds expected at each row of `sizes`. Source: as the class."""
        columns = np.broadcast_arrays(*(np.log2(np.maximum(1.0, size)) for size in sizes))
        rows = np.stack([column.ravel() for column in columns], axis=-1)
        first, row = _distinct(rows)
        near = covariance(rows[first], self.positions)
        factor: FloatColumn = np.exp(self.level + near @ self.weights)
        return factor[row].reshape(columns[0].shape)


def residuals(
    sizes: Sequence[FloatColumn],
    ratios: FloatColumn,
    *,
    level: float | None = None,
    nugget: float = NUGGET,
) -> Residuals:
    """Residuals of points with the given sizes and measured over fitted seconds.

    `level` is the logarithm far from all points; by default the median of the points.
    Source: as `Residuals`.
    """
    every = -(-len(ratios) // MOST_POINTS)
    columns = [np.asarray(size, float)[::every] for size in sizes]
    positions = np.log2(np.maximum(1.0, np.stack(columns, axis=-1)))
    logs = np.log(np.asarray(ratios, float)[::every])
    far = float(np.median(logs)) if level is None else level
    own = covariance(positions, positions) + nugget * np.eye(len(logs))
    return Residuals(positions, np.linalg.solve(own, logs - far), far)


def _distinct(rows: FloatColumn) -> tuple[IntColumn, IntColumn]:
    """One row of every kind, and for each row its kind.

    Source: a number in mixed radix, code * values + place, is the same for equal rows alone;
    sorting columns one by one is faster than sorting rows.
    """
    code = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        values, place = np.unique(column, return_inverse=True)
        code = code * len(values) + place
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return first, kind


def covariance(
    left: FloatColumn, right: FloatColumn, reach_octaves: float = REACH_OCTAVES
) -> FloatColumn:
    """Exponential in the distance in octaves. Source: as `Residuals`, section 4.2.1."""
    squares = (left**2).sum(axis=-1)[:, None] + (right**2).sum(axis=-1)
    distance = np.sqrt(np.maximum(0.0, squares - 2 * left @ right.T))
    near: FloatColumn = np.exp(-distance / reach_octaves)
    return near

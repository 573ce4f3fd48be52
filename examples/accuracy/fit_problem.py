"""The most probable parameters of a linearised problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from fit_rows import FloatColumn, Row
from numpy.typing import NDArray

HUBER = 0.04
"""Log residual beyond which the loss grows linearly."""
SIGMA = 0.08
"""Spread of a source's residuals that counts as one unit."""
EVIDENCE = 8.0
"""Independent observations one source is worth."""
RANKING = 1.0
"""Weight of differences inside a group of layouts over that of the residuals themselves."""
LARGEST_MOVE = 0.25


@dataclass(frozen=True)
class Problem:
    """Residuals at a point and their derivative there."""

    rows: list[Row]
    spreads: FloatColumn
    theta: FloatColumn
    residual: FloatColumn
    slope: FloatColumn

    def solve(self, keep: NDArray[np.bool_]) -> FloatColumn:
        """Most probable parameters, linearised at `theta`, from the rows kept."""
        weights, groups = _weights(self.rows, keep), _groups(self.rows, keep)
        point = self.theta.copy()
        for _ in range(30):
            now = self.residual + self.slope @ (point - self.theta)
            matrix = np.diag(1 / self.spreads**2)
            vector = -point / self.spreads**2
            parts = [(self.slope, now, weights)]
            if groups:
                inside = np.zeros_like(now)
                slope = np.zeros_like(self.slope)
                share = np.zeros_like(now)
                for members in groups:
                    inside[members] = now[members] - now[members].mean()
                    slope[members] = self.slope[members] - self.slope[members].mean(axis=0)
                    share[members] = RANKING * EVIDENCE / SIGMA**2 / len(groups) / len(members)
                parts.append((slope, inside, share))
            for slope_of, value, weight in parts:
                robust = weight / np.maximum(1.0, np.abs(value) / HUBER)
                matrix += slope_of.T @ (robust[:, None] * slope_of)
                vector -= slope_of.T @ (robust * value)
            step = np.linalg.solve(matrix, vector)
            point = point + step
            if np.abs(step).max() < 1e-4:
                break
        return np.clip(point, self.theta - LARGEST_MOVE, self.theta + LARGEST_MOVE)


def _weights(rows: Sequence[Row], keep: NDArray[np.bool_]) -> FloatColumn:
    kept = np.array([row.weight for row in rows]) * keep
    return EVIDENCE / SIGMA**2 * kept


def _groups(rows: Sequence[Row], keep: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    members: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if keep[index]:
            members[row.group].append(index)
    return [np.array(group) for group in members.values() if len({rows[i].key for i in group}) >= 4]

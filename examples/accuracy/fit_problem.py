"""The most probable parameters of a linearised problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from fit_rows import FloatColumn, Pair, Row
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
"""Of a parameter in one round: further away the derivatives are others."""


Part = tuple[FloatColumn, FloatColumn, FloatColumn]
"""Derivatives, residuals and weights."""


@dataclass(frozen=True)
class Problem:
    """Residuals at a point and their derivative there."""

    rows: list[Row]
    spreads: FloatColumn
    theta: FloatColumn
    residual: FloatColumn
    slope: FloatColumn
    pairs: Sequence[Pair] = ()
    """Twins, whose ratios count; `pair_part` holds their residuals at `theta`."""
    pair_part: tuple[FloatColumn, FloatColumn] | None = None
    """Derivatives and residuals of the ratios."""

    def solve(self, keep: NDArray[np.bool_], *, largest: float = LARGEST_MOVE) -> FloatColumn:
        """Most probable parameters, linearised at `theta`, from the rows kept."""
        parts = self._parts(keep)
        point = self.theta.copy()
        for _ in range(30):
            evidence, gradient = self._normal(point, parts)
            matrix = evidence + np.diag(1 / self.spreads**2)
            step = np.linalg.solve(matrix, gradient - point / self.spreads**2)
            point = point + step
            if np.abs(step).max() < 1e-4:
                break
        return np.clip(point, self.theta - largest, self.theta + largest)

    def learnt(self, keep: NDArray[np.bool_]) -> FloatColumn:
        """What the rows kept say of each parameter beside its prior: 0 nothing, 1 all.

        Source: derived; of a linear problem with normal errors the shares of the data in the most
        probable parameters, whose sum is the effective number of parameters (Hastie, Tibshirani
        and Friedman, The Elements of Statistical Learning, 2nd edition, section 3.4.1).
        """
        evidence, _ = self._normal(self.theta, self._parts(keep))
        whole = evidence + np.diag(1 / self.spreads**2)
        return np.asarray(np.diag(np.linalg.solve(whole, evidence)))

    def _parts(self, keep: NDArray[np.bool_]) -> list[Part]:
        """Residuals, and their differences inside groups of layouts."""
        parts = [(self.slope, self.residual, _weights(self.rows, keep))]
        groups = _groups(self.rows, keep)
        if groups:
            inside = np.zeros_like(self.residual)
            slope = np.zeros_like(self.slope)
            share = np.zeros_like(self.residual)
            for members in groups:
                inside[members] = self.residual[members] - self.residual[members].mean()
                slope[members] = self.slope[members] - self.slope[members].mean(axis=0)
                share[members] = RANKING * EVIDENCE / SIGMA**2 / len(groups) / len(members)
            parts.append((slope, inside, share))
        if self.pair_part:
            left = {row.source for row, stays in zip(self.rows, keep, strict=True) if not stays}
            weight = [pair.weight * (pair.source not in left) for pair in self.pairs]
            parts.append((*self.pair_part, EVIDENCE / SIGMA**2 * np.array(weight)))
        return parts

    def _normal(self, point: FloatColumn, parts: Sequence[Part]) -> tuple[FloatColumn, FloatColumn]:
        """Curvature of the loss of the runs at a point, and its descent."""
        curvature = np.zeros((len(point), len(point)))
        descent = np.zeros(len(point))
        for slope, residual, weight in parts:
            value = residual + slope @ (point - self.theta)
            robust = weight / np.maximum(1.0, np.abs(value) / HUBER)
            curvature += slope.T @ (robust[:, None] * slope)
            descent -= slope.T @ (robust * value)
        return curvature, descent


def _weights(rows: Sequence[Row], keep: NDArray[np.bool_]) -> FloatColumn:
    kept = np.array([row.weight for row in rows]) * keep
    return EVIDENCE / SIGMA**2 * kept


def _groups(rows: Sequence[Row], keep: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    members: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if keep[index]:
            members[row.group].append(index)
    return [np.array(group) for group in members.values() if len({rows[i].key for i in group}) >= 4]

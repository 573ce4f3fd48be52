"""Points that no other point is as good as in every respect."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.columns import IntColumn

Points = NDArray[np.float64]
"""What each point wants small; shape (point, respect)."""

SAME = 1e-12
"""Part of the largest number of a respect that is only rounding. Source: assumed; thousands of
times the rounding of a sum of a few hundred numbers."""
BLOCK = 256
"""Points compared with each other at a time. Source: assumed."""


def nondominated(points: Points) -> IntColumn:
    """Points to keep; of points that are the same, one. Their numbers are in the order of sums."""
    if len(points) < 2 or points.shape[1] == 0:
        return np.arange(min(1, len(points)) if points.shape[1] == 0 else len(points))
    size = np.abs(points).max(axis=0)
    size[size == 0] = 1.0
    order = np.argsort((points / size).sum(axis=1), kind="stable")
    points = (points / size)[order]
    kept = np.zeros(0, np.int64)
    for start in range(0, len(points), BLOCK):
        block = points[start : start + BLOCK]
        new = np.flatnonzero(~_dominated(block, points[kept]))
        kept = np.concatenate([kept, start + new[_first(block[new])]])
    return order[kept]


def _dominated(points: Points, others: Points) -> NDArray[np.bool_]:
    """Is one of the others as good in every respect?"""
    beaten = np.zeros(len(points), np.bool_)
    for start in range(0, len(others), 8 * BLOCK):
        left = np.flatnonzero(~beaten)
        part = others[start : start + 8 * BLOCK]
        as_good = np.ones((len(left), len(part)), np.bool_)
        for respect in range(points.shape[1]):
            as_good &= part[None, :, respect] <= points[left, respect, None] + SAME
        beaten[left] = as_good.any(axis=1)
    return beaten


def _first(points: Points) -> IntColumn:
    """Points of a short sorted list that no kept one before them beats."""
    as_good = np.ones((len(points), len(points)), np.bool_)
    for respect in range(points.shape[1]):
        as_good &= points[None, :, respect] <= points[:, None, respect] + SAME
    keep = np.zeros(len(points), np.bool_)
    for i in range(len(points)):
        keep[i] = not (as_good[i, :i] & keep[:i]).any()
    return np.flatnonzero(keep)

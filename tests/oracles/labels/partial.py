"""Answers to a `LayerAssignment` in part: labels, and what they are compared by."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.planner.solvers.layer_assignment import Coefficients, Counts, LayerAssignment

Grown = NDArray[np.float64]
"""What rows or needs have grown to; shape (label, row or need)."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels in front of one stage, of all places."""

    place: IntColumn
    """Layers placed."""
    rows: Grown
    """Of costs: the largest of each class of `Respects`."""
    needs: Grown
    """Those that may still grow."""
    refused: NDArray[np.bool_]
    """Is the label the beginning of this refused answer? Shape (label, answer)."""
    bound: FloatColumn
    """No allowed answer that begins so has a smaller value."""
    parent: IntColumn
    """The label in front of the stage before that it goes on from."""
    counts: Counts
    """Layers of the stage before run in each way; shape (label, way)."""

    def __len__(self) -> int:
        return len(self.place)

    def take(self, chosen: IntColumn | NDArray[np.bool_]) -> Labels:
        """Some of the labels."""
        return Labels(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def smallest_bound(self) -> float:
        """No allowed answer that begins with one of the labels has a smaller value."""
        return float(self.bound.min(initial=np.inf))


def joined(parts: list[Labels]) -> Labels:
    """The labels of all parts; of one at least."""
    columns = ([getattr(part, field.name) for part in parts] for field in fields(Labels))
    return Labels(*(np.concatenate(column) for column in columns))


def most_promising(labels: Labels, width: int) -> tuple[Labels, float]:
    """The labels of the smallest bounds, and the smallest bound of the others."""
    if len(labels) <= width:
        return labels, np.inf
    order = np.argsort(labels.bound, kind="stable")
    return labels.take(np.sort(order[:width])), float(labels.bound[order[width]])


class Respects:
    """What labels in front of one stage are compared by."""

    def __init__(self, problem: LayerAssignment, stage: int) -> None:
        classes: dict[tuple[int, bytes], list[int]] = {}
        for i, group in enumerate(problem.group.tolist()):
            classes.setdefault((group, problem.costs[i, stage:].tobytes()), []).append(i)
        self.members = list(classes.values())
        """Rows of a group that grow alike from here on: the largest is enough."""
        self.group = np.array([group for group, _ in classes], np.int64)
        self.row = np.array([rows[0] for rows in self.members], np.int64)
        """One row of each class."""
        self.needs = np.flatnonzero(problem.needs[:, stage:].any(axis=(1, 2)))
        """Needs that may still grow."""
        self.rows_compared = _different([problem.costs[rows, :stage] for rows in self.members])
        needs = [problem.needs[[j], :stage] for j in self.needs.tolist()]
        self.needs_compared = _different(needs)

    def merged(self, rows: Grown, before: Respects) -> Grown:
        """The largest row of each class, from rows of the classes one stage before."""
        if not self.members:
            return rows
        number = {row: c for c, members in enumerate(self.members) for row in members}
        classes = np.array([number[row] for row in before.row.tolist()], np.int64)
        order = np.argsort(classes, kind="stable")
        starts = np.searchsorted(classes[order], np.arange(len(self.members)))
        return np.asarray(np.maximum.reduceat(rows[:, order], starts, axis=1), np.float64)


def _different(grown: list[Coefficients]) -> IntColumn:
    """Respects but those in which all labels are alike, and one of those that grew alike."""
    first: dict[bytes, int] = {}
    for number, rows in enumerate(grown):
        alike = bool((rows == rows[0]).all())
        if not alike or rows.any():
            first.setdefault(rows[0].tobytes() if alike else str(number).encode(), number)
    return np.array(sorted(first.values()), np.int64)

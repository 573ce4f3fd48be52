"""Stages filled with layers: the problem that exact solvers share, and its answer.

    minimise    sum over groups g of   max over rows i of g of   costs[i] . counts + constants[i]
    subject to  needs[j] . counts <= capacities[j]
                least[s] <= layers of stage s <= most[s]
                the stages, one after the other, hold the layers of the model in their order
                counts is none of `refused`

`counts[s, w]` layers of stage `s` are run in the way `w`. A way belongs to one kind of layer
(dense, mixture of experts); several ways of one kind differ in what they recompute or offload.
Layers of one kind are interchangeable, so counts are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from trainplan.planner.work import Deadline

if TYPE_CHECKING:
    from trainplan.costmodel.columns import FloatColumn, IntColumn

Counts = NDArray[np.int64]
"""Layers of each stage run in each way; shape (stage, way)."""
Coefficients = NDArray[np.float64]
"""What one layer adds to a row; shape (row, stage, way)."""


@dataclass(frozen=True, slots=True)
class LayerAssignment:
    """One problem. Costs and needs of a layer are not negative."""

    layers: tuple[int, ...]
    """Kind of every layer of the model, in order."""
    kind_of_way: tuple[int, ...]
    """The kind of layer that each way runs."""
    costs: Coefficients
    constants: FloatColumn
    group: IntColumn
    """Of each row of `costs`: 0, 1, ...; the value is the sum over groups of their largest row."""
    needs: Coefficients
    capacities: FloatColumn
    least: IntColumn
    most: IntColumn
    """Layers of each stage."""
    refused: tuple[Counts, ...] = ()
    """Answers that were tried and are not wanted."""

    def value(self, counts: Counts) -> float:
        """What is minimised. Source: the formula of the module."""
        rows = np.einsum("isw,sw->i", self.costs, counts) + self.constants
        return float(sum(rows[self.group == g].max() for g in np.unique(self.group).tolist()))


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a solver knows when it ends."""

    counts: Counts | None
    """The best answer found; None if there is none below the cutoff, or none was found in time."""
    value: float
    """Its value; infinite without an answer."""
    lower_bound: float
    """No allowed answer has a smaller value; infinite where none exists. With a cutoff: none that
    is smaller than the cutoff."""

    @property
    def proved(self) -> bool:
        """Is the answer the best one, or is there provably none below the cutoff?"""
        return self.lower_bound >= self.value


class Solver(Protocol):
    """An exact solver of `LayerAssignment`."""

    def __call__(
        self, problem: LayerAssignment, deadline: Deadline, cutoff: float = np.inf
    ) -> Assigned:
        """The best answer whose value is below `cutoff`, as far as the deadline allows."""


ROUNDING = 1e-9
"""Part of a capacity that sums of needs may miss by rounding. Source: assumed; 100 bytes of
100 GB, and a million times the rounding of one sum."""


def limits(problem: LayerAssignment) -> FloatColumn:
    """Capacities with what rounding may add; the unit of each need."""
    return problem.capacities + ROUNDING * np.abs(problem.capacities)


def allowed(problem: LayerAssignment, counts: Counts) -> bool:
    """Do the counts break none of the constraints?"""
    held = counts.sum(axis=1)
    needs = np.einsum("jsw,sw->j", problem.needs, counts)
    return bool(
        (counts >= 0).all()
        and (held >= problem.least).all()
        and (held <= problem.most).all()
        and (needs <= limits(problem)).all()
        and in_order(problem, counts)
        and not any(np.array_equal(counts, refused) for refused in problem.refused)
    )


def in_order(problem: LayerAssignment, counts: Counts) -> bool:
    """Do the stages, one after the other, hold the layers of the model?"""
    ways, layers = np.array(problem.kind_of_way), np.array(problem.layers, np.int64)
    ends = np.cumsum(counts.sum(axis=1))
    if (ends[-1] if len(ends) else 0) != len(layers):
        return False
    for kind in {*problem.kind_of_way, *problem.layers}:
        before = np.concatenate([[0], np.cumsum(layers == kind)])
        if (np.cumsum(counts[:, ways == kind].sum(axis=1)) != before[ends]).any():
            return False
    return True


def reach(problem: LayerAssignment) -> tuple[IntColumn, IntColumn]:
    """Layers before the end of each stage, the fewest and the most.

    No answer is allowed where the fewest are above the most.
    """
    layers, least, most = len(problem.layers), problem.least, problem.most
    after_least, after_most = least.sum() - np.cumsum(least), most.sum() - np.cumsum(most)
    first = np.maximum(np.cumsum(least), layers - after_most)
    last = np.minimum(np.cumsum(most), layers - after_least)
    return first, last

"""Stages filled with layers, as a mixed-integer program.

    minimise    sum over groups g of   max over rows i of g of   costs[i] . counts + constants[i]
    subject to  needs[j] . counts <= capacities[j]
                least[s] <= layers of stage s <= most[s]
                the stages, one after the other, hold the layers of the model in their order
                counts is none of `refused`

`counts[s, w]` layers of stage `s` are run in the way `w`. A way belongs to one kind of layer
(dense, mixture of experts); several ways of one kind differ in what they recompute or offload.
Layers of one kind are interchangeable, so counts are enough.

Whole columns `x[s, w]` are the counts. In a group of rows, what all rows share is a part of the
objective of its own; one column above the rests of its rows is the other part. So the fill of a
pipeline, which every row of a step time contains, costs no entry in the matrix.

Layers keep their order by the incremental form of a step function: `done[s, r]` layers of run `r`
lie in stages 0 to s, and run `r + 1` begins only where run `r` is whole. A run is a row of layers
of one kind, so a model of one kind needs no binary at all. Source: Padberg, Operations Research
Letters 27, 2000 (the form whose corners are whole); the rest derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainplan.planner.solvers.linear import Program, Terms
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


USUAL = 1000.0
"""The objective of an ordinary answer after scaling: 1e9 times the tolerance of the solver."""


def solve(problem: LayerAssignment, deadline: Deadline, cutoff: float = np.inf) -> Assigned:
    """The best answer whose value is below `cutoff`, as far as the deadline allows.

    The value is the one of the counts, not the solver's; the two agree up to `ROUNDING`.
    """
    nothing = np.zeros((len(problem.least), len(problem.kind_of_way)), np.int64)
    bound = problem.value(nothing)
    first, last = reach(problem)
    if (first > last).any() or len(first) == 0:
        return Assigned(None, np.inf, np.inf)
    model: Model | None = None
    while deadline.seconds_left() > 0:
        model = model or Model(problem, cutoff)
        found = model.program.solve(deadline.seconds_left())
        bound = max(bound, found.bound / model.scale)
        if found.values is None:
            return _stopped(bound, cutoff)
        counts = np.rint(found.values[model.counts]).astype(np.int64)
        if allowed(problem, counts):
            value, bound = problem.value(counts), np.inf if found.ended else bound
            if value >= cutoff:
                return _stopped(bound, cutoff)
            return Assigned(counts, value, value if bound >= value * (1 - ROUNDING) else bound)
        model.refuse(counts)  # within the solver's tolerance, not within ours
    return _stopped(bound, cutoff)


def _stopped(bound: float, cutoff: float) -> Assigned:
    """No answer; above the cutoff, a bound says that there is none."""
    return Assigned(None, np.inf, np.inf if bound >= cutoff else bound)


class Model:
    """Columns and rows of one problem."""

    def __init__(self, problem: LayerAssignment, cutoff: float) -> None:
        self.problem, self.program = problem, Program()
        self.scale = _scale(problem)
        layers = np.array([problem.layers.count(kind) for kind in problem.kind_of_way], np.int64)
        most = np.minimum(problem.most[:, None], layers[None, :])
        self.counts = np.zeros(most.shape, np.int64)
        for s, w in np.ndindex(most.shape[0], most.shape[1]):
            self.counts[s, w] = self.program.column(0, float(most[s, w]), whole=True)
        self._hold()
        self._in_order()
        self._need()
        self._cost(cutoff)
        for counts in problem.refused:
            self.refuse(counts)

    def _hold(self) -> None:
        """Every stage holds as many layers as it may."""
        held = zip(self.counts, self.problem.least, self.problem.most, strict=True)
        for columns, least, most in held:
            self.program.at_most([(x, 1.0) for x in columns.tolist()], float(most))
            self.program.at_most([(x, -1.0) for x in columns.tolist()], -float(least))

    def _in_order(self) -> None:
        """The stages hold the layers of the model, run after run."""
        runs = [(kind, len(list(run))) for kind, run in groupby(self.problem.layers)]
        done = self._done([length for _, length in runs])
        ways = np.array(self.problem.kind_of_way)
        for kind in sorted({*self.problem.kind_of_way, *self.problem.layers}):
            mine = [r for r, run in enumerate(runs) if run[0] == kind]
            for s, counts in enumerate(self.counts[:, ways == kind].tolist()):
                terms = [(x, 1.0) for x in counts]
                terms += [(x, -1.0) for x in done[s, mine].tolist()]
                terms += [(x, 1.0) for x in done[s - 1, mine].tolist() if s > 0]
                self.program.equal(terms, 0.0)

    def _done(self, lengths: list[int]) -> IntColumn:
        """Columns of the layers of each run in the stages up to each; shape (stage, run)."""
        program, (first, last) = self.program, reach(self.problem)
        done = np.zeros((len(first), len(lengths)), np.int64)
        begin = np.cumsum([0, *lengths])
        for s, r in np.ndindex(*done.shape):
            low, high = np.clip([first[s] - begin[r], last[s] - begin[r]], 0, lengths[r])
            done[s, r] = program.column(low, high)
            if r > 0 and low < lengths[r] and last[s] > begin[r] > first[s]:
                whole, before = program.column(0, 1, whole=True), int(done[s, r - 1])
                program.at_most([(whole, lengths[r - 1]), (before, -1.0)], 0.0)
                program.at_most([(int(done[s, r]), 1.0), (whole, -lengths[r])], 0.0)
        return done

    def _need(self) -> None:
        """Rows of needs, each in the unit of its largest coefficient."""
        for needs, capacity in zip(self.problem.needs, limits(self.problem), strict=True):
            unit = float(needs.max(initial=0.0)) or 1.0
            if np.isinf(capacity):
                continue
            self.program.at_most(self._terms(needs / unit), capacity / unit)

    def _cost(self, cutoff: float) -> None:
        """The objective, and the rows above which the column of their group lies."""
        costs, constants = self.problem.costs * self.scale, self.problem.constants * self.scale
        shared, above = np.zeros(self.counts.shape), []
        for g in np.unique(self.problem.group).tolist():
            rows, base = costs[self.problem.group == g], constants[self.problem.group == g]
            common = rows.min(axis=0)
            shared += common
            largest = self.program.column(base.max(), np.inf)
            above.append((largest, 1.0))
            for rest, constant in zip(rows - common, base, strict=True):
                if rest.any():
                    self.program.at_most([*self._terms(rest), (largest, -1.0)], -constant)
        self.program.minimise([*self._terms(shared), *above], cutoff * self.scale)

    def refuse(self, counts: Counts) -> None:
        """One count is above the one refused: both add up to all layers."""
        if counts.sum() != len(self.problem.layers):
            return
        higher = []
        for x, count in zip(self.counts.ravel().tolist(), counts.ravel().tolist(), strict=True):
            higher.append((self.program.column(0, 1, whole=True), -1.0))
            self.program.at_most([(higher[-1][0], count + 1.0), (x, -1.0)], 0.0)
        self.program.at_most(higher, -1.0)

    def _terms(self, coefficients: FloatColumn) -> Terms:
        """Counts with their coefficients, those that are not zero; shape (stage, way)."""
        used = coefficients != 0
        return list(zip(self.counts[used].tolist(), coefficients[used].tolist(), strict=True))


def _scale(problem: LayerAssignment) -> float:
    """What makes the value of layers spread evenly `USUAL`."""
    stages, ways = max(1, len(problem.least)), max(1, len(problem.kind_of_way))
    each = len(problem.layers) / (stages * ways)
    rows = each * problem.costs.sum(axis=(1, 2)) + problem.constants
    even = sum(np.abs(rows[problem.group == g]).max() for g in np.unique(problem.group).tolist())
    return USUAL / float(even) if even > 0 else 1.0

"""The best of many fillings: each is bounded in closed form, and solved only where that can win."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from trainplan.planner.solvers.layer_assignment import Assigned, Counts, LayerAssignment
from trainplan.planner.work import Deadline

if TYPE_CHECKING:
    from trainplan.costmodel.columns import FloatColumn


@dataclass(frozen=True, slots=True)
class Case:
    """One of many fillings."""

    name: str
    filling: LayerAssignment
    bound: float
    """No answer has a smaller value."""
    ways: tuple[str, ...]
    """The ways of the filling in words."""
    evaluate: Callable[[Counts], float] | None = None
    """The value of an answer where the filling promises less than that."""

    def value(self, counts: Counts) -> float:
        """Of an answer."""
        return self.filling.value(counts) if self.evaluate is None else self.evaluate(counts)

    def text(self, counts: Counts) -> str:
        """An answer in words."""
        stages = [
            " + ".join(f"{n} {way}" for n, way in zip(row, self.ways, strict=True) if n)
            for row in counts.tolist()
        ]
        return f"{self.name}: {' | '.join(stages)}"


@dataclass(frozen=True, slots=True)
class Best:
    """The best answer of all cases."""

    case: Case | None
    """None if nothing fits."""
    counts: Counts | None
    value: float
    """Infinite if nothing fits."""
    lower_bound: float
    """No case has a smaller value."""
    solved: int
    """Cases that went to the solver."""


def relaxed_value(of: LayerAssignment) -> float:
    """No answer of a filling has a smaller value.

    The filling says how many layers each stage holds, and has one need for each stage. For every
    choice of one row from each group, the sum of the rows is linear and falls apart into stages.
    What a stage adds is least when its layers are shared, in parts, between two ways at most.
    Source: derived; a linear programme with two equations has a best answer with two positive
    variables.
    """
    rows = [np.flatnonzero(of.group == g) for g in np.unique(of.group)]
    chosen = np.array(list(product(*rows)))
    costs = of.costs[chosen].sum(axis=1)
    constants = of.constants[chosen].sum(axis=1)
    for stage in range(of.costs.shape[1]):
        room = float(of.capacities[stage])
        layers = int(of.least[stage])
        needs = of.needs[stage, stage]
        constants = constants + cheapest_mix(costs[:, stage], needs, layers, room)
    return float(constants.max())


def cheapest_mix(costs: FloatColumn, needs: FloatColumn, layers: int, room: float) -> FloatColumn:
    """Least cost of each row when parts of layers may differ; infinite if nothing fits.

    Args:
        costs: Of one layer; shape (row, way).
        needs: Of one layer; shape (way,).
        layers: How many there are; at least one.
        room: What all may need together.
    """
    each = room / layers
    small, large = np.flatnonzero(needs <= each), np.flatnonzero(needs > each)
    if not small.size:
        return np.full(len(costs), inf)
    least = costs[:, small].min(axis=1)
    if large.size:
        step = needs[large][None, :] - needs[small][:, None]
        share = (each - needs[small])[:, None] / step
        mixed = costs[:, small][:, :, None] * (1 - share) + costs[:, large][:, None, :] * share
        least = np.minimum(least, mixed.min(axis=(1, 2)))
    return np.asarray(layers * least)


Solver = Callable[[LayerAssignment, Deadline, float], Assigned]
"""An exact solver: the best answer below a cutoff, as far as the deadline allows."""


def best_of(cases: Sequence[Case], solver: Solver, deadline: Deadline) -> Best:
    """The best answer, as far as the deadline allows: best bound first."""
    best, bound, solved = Best(None, None, inf, inf, 0), inf, 0
    for case in sorted(cases, key=lambda each: each.bound):
        if case.bound >= best.value or case.bound == inf:
            break
        if deadline.seconds_left() <= 0:
            bound = min(bound, case.bound)
            break
        answer = best_answer(case, solver, deadline, best.value)
        bound, solved = min(bound, max(answer.lower_bound, case.bound)), solved + answer.solved
        if answer.value < best.value:
            best = answer
    return replace(best, lower_bound=min(bound, best.value), solved=solved)


def best_answer(case: Case, solver: Solver, deadline: Deadline, cutoff: float) -> Best:
    """The best answer of one case below `cutoff`.

    Where a filling promises less than is true, its answers come one after the other, each refused
    once it is judged, until the promise is no less than the best judged.
    """
    best, problem, solved = Best(case, None, inf, inf, 0), case.filling, 0
    while True:
        filled = solver(problem, deadline, min(cutoff, best.value))
        solved += 1
        if filled.counts is None:
            return replace(best, lower_bound=min(best.value, filled.lower_bound), solved=solved)
        value = case.value(filled.counts)
        if value < best.value:
            best = replace(best, counts=filled.counts, value=value)
        if case.evaluate is None:
            return replace(best, lower_bound=filled.lower_bound, solved=solved)
        problem = replace(problem, refused=(*problem.refused, filled.counts))

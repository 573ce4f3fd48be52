"""Experts into packs of equal size, so that the fullest is as empty as can be, by a whole program.

Nothing here knows a layer or a rank. Columns say how many of a pack's slots hold a copy of an
expert that has so many; copies share its rows equally.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.planner.solvers.linear import Program

MOST_COLUMNS = 5_000
"""Of a program that is tried. Source: measured; HiGHS takes seconds to begin with more."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What each slot holds, and what no packing is below."""

    experts: IntColumn | None
    """Of the best packing found below the cutoff; null: none."""
    packs: IntColumn | None
    bound: float
    """The fullest pack over the mean one. Infinite: no packing is below the cutoff."""


def pack_experts(
    weights: FloatColumn, packs: int, copies: int, cutoff: float, seconds: float, *, worst: bool
) -> Packed:
    """The best packing of rows [step, expert] whose value is below `cutoff`.

    Its value: the fullest pack of a step over the mean one, the mean of steps or the `worst`.
    Orders of equal packs are broken by the largest experts: where no copies are, expert i lies in
    one of the first i + 1 packs.

    Source: derived; minimise the mean of t[s] (or t) with rows of a pack in step s at most t[s],
    sum over packs of x[i, c, p] = c z[i, c], sum over c of z[i, c] = 1, slots of a pack full.
    """
    steps, experts = weights.shape
    counts = range(1, min(copies + 1, experts + copies) + 1)
    if experts * len(counts) * packs > MOST_COLUMNS or seconds <= 0:
        return Packed(None, None, 1.0)
    each = weights * packs / weights.sum(axis=1, keepdims=True)
    program, size = Program(), (experts + copies) // packs
    fullest = [program.column(1.0, np.inf) for _ in range(1 if worst else steps)]
    order = np.argsort(-each.sum(axis=0), kind="stable")
    place = np.argsort(order)
    held = {
        (i, c, p): program.column(0, 0 if not copies and p > place[i] else min(c, size), whole=True)
        for i, c, p in product(range(experts), counts, range(packs))
    }
    for i in range(experts):
        if not copies:
            program.equal([(held[i, 1, p], 1.0) for p in range(packs)], 1.0)
            continue
        chosen = [program.column(0, 1, whole=True) for _ in counts]
        program.equal([(one, 1.0) for one in chosen], 1.0)
        for c, one in zip(counts, chosen, strict=True):
            terms = [(held[i, c, p], 1.0) for p in range(packs)]
            program.equal([*terms, (one, -float(c))], 0.0)
    for p in range(packs):
        own = [(held[i, c, p], c, i) for i, c in product(range(experts), counts)]
        program.equal([(column, 1.0) for column, _, _ in own], size)
        for s in range(steps):
            rows = [(column, float(each[s, i]) / c) for column, c, i in own]
            program.at_most([*rows, (fullest[0 if worst else s], -1.0)], 0.0)
    program.minimise([(one, 1.0 / len(fullest)) for one in fullest], cutoff)
    found = program.solve(seconds)
    if found.values is None:
        return Packed(None, None, max(1.0, found.bound))
    slots = [
        (i, p) for (i, _, p), one in held.items() for _ in range(round(float(found.values[one])))
    ]
    where = np.array(slots)
    return Packed(where[:, 0], where[:, 1], max(1.0, found.bound))

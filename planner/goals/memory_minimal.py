"""The memory-minimal layout among those nearly as fast as the fastest.

Searches under ever tighter memory: one that finds a layout within the time lowers what is needed,
one that finds none proves that no less will do. Halving brings the two close, then steps of one
byte meet the proof. It is one of even stages; uneven ones are tried with the degrees of the answer.
"""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import price
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.uneven import splits_within_memory

CLOSE_FRACTION = 1 / 64
"""Of the memory: nearer than that, halving proves no more than single steps do."""


@dataclass(frozen=True, slots=True)
class MemoryMinimal:
    """A layout that is fast enough, and what is proven of its memory."""

    layout: LayoutTable
    """One row."""
    used_bytes: float
    """On its fullest rank."""
    lower_bound_bytes: float
    """No layout that is fast enough uses less."""


def memory_minimal(
    context: SearchContext, known: LayoutTable, most_seconds: float
) -> MemoryMinimal:
    """The layout that uses least memory of those whose step takes `most_seconds` at most.

    `known` are layouts that do, one at least.
    """
    best = _memory_minimal_of(context, known)
    usable = context.usable_bytes
    proved = 0.0
    cutoff = float(np.nextafter(most_seconds, np.inf))
    while proved < best.used_bytes and not context.budget.spent():
        limit = best.used_bytes - 1.0
        if best.used_bytes - proved > CLOSE_FRACTION * usable:
            limit = (best.used_bytes + proved) / 2
        found = context.any(context.search(memory_bytes=limit), cutoff)
        even = found.finalists if found.value < cutoff else None
        if even is None and not found.complete:
            break
        fits = even or splits_within_memory(
            context, best.layout, cutoff, memory_bytes=limit, roots=found.roots
        )
        if fits is not None:
            best = _memory_minimal_of(context, fits)
        else:
            proved = best.used_bytes if limit >= best.used_bytes - 1.0 else limit
    return MemoryMinimal(best.layout, best.used_bytes, proved)


def _memory_minimal_of(context: SearchContext, table: LayoutTable) -> MemoryMinimal:
    used = price(context.with_table(table)).memory.used
    row = int(np.argmin(used))
    return MemoryMinimal(table.take(np.array([row])), float(used[row]), 0.0)

"""The pipelines that the zero-bubble scheduler tests itself with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import zero_bubble
from answers import Row, Watch, finite

THEIRS = {
    (2, 2): (7, 7),
    (2, 4): (13, 12),
    (4, 4): (15, 15),
    (4, 8): (27, 24),
    (4, 16): (51, 48),
    (8, 4): (23, 23),
    (8, 8): (31, 31),
    (8, 16): (55, 48),
}
"""Units of the longest span by stages and micro batches, with memory for p and for 2 p of them.
Source: `initial_solution` of its scheduler/zb.py at commit 39f2c186, mem_f 1, mem_b 0, mem_w -1."""
CPU_S = 0.01
"""CPU seconds of its largest problem, without its imports; the others take less."""


def rows(checkout: Path, limit: float) -> Iterator[Row]:
    """Every shape with both memories."""
    for problem in zero_bubble.read(checkout):
        watch = Watch()
        found, taken = zero_bubble.solve(problem), watch.read()
        p, m = problem.stages, problem.microbatches
        known = THEIRS.get((p, m))
        theirs = None if known is None else float(known[problem.memory > p])
        text = f"{p} stages, {m} micro batches, {problem.memory} held"
        bound, ours = problem.lower_bound, finite(found.span)
        note = "F = B = W = 1 s, span of a stage"
        yield Row(
            "zero-bubble", text, "a step", theirs, ours, bound, CPU_S, *taken, found.schedule, note
        )

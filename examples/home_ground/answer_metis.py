"""The sample that Metis ships; the peer's answer is the best under its own test of memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import metis
from answers import Row, finite
from filled import solved

CPU_S = 0.2
"""CPU seconds of its whole cost_het_cluster.py on 8 GPUs of the sample, three runs of 0.2."""


def rows(checkout: Path, limit: float) -> Iterator[Row]:
    """One question."""
    of = metis.read(checkout)
    theirs = solved(partial(metis.cases, of, metis.Question(by_group=True)), limit)
    ours = solved(partial(metis.cases, of, metis.Question()), limit)
    fits = "fits" if metis.most_mib(theirs.best) <= of.device_mib else "does not fit"
    note = f"the peer's {fits}: {theirs.plan}"
    problem = "the shipped sample, 8 GPUs"
    yield ours.row("metis", problem, finite(theirs.best.value), CPU_S, note)

"""BERT on 64 devices, as Piper ships it; exact whatever the limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import piper
import piper_search
from answers import Row, Watch

THEIRS = 0.02030357618
"""Seconds per sample. Source: its algo.cpp at commit d7fc8cf run with the question of `piper`."""
CPU_S = 0.2
"""CPU seconds of that run, compiled with -O3: three runs of 0.20 to 0.21."""


def rows(checkout: Path, limit: float) -> Iterator[Row]:
    """One question."""
    watch, question = Watch(), piper.Question()
    best = piper_search.solve(piper.read(checkout), question)
    plan = ", ".join(f"{len(s.layers)} on {s.dp}x{s.tp}" for s in best.stages)
    problem = f"BERT, {question.devices} devices of 8 GiB, 480 micro batches"
    ours, taken = best.seconds, watch.read()
    note = "layers on dp x tp"
    yield Row("piper", problem, "a sample", THEIRS, ours, ours, CPU_S, *taken, plan, note)

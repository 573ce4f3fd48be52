"""The stages that Alpa tests its dynamic programme with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import alpa
from answers import Row, Watch, finite

THEIRS = 0.29528505
"""Seconds of a step. Source: `training_dp` and `training_dp_2` of its stage_construction.py at
commit b8078a9, run as Python on the problem of the test; both print this, in single precision."""
CPU_S = 0.007
"""CPU seconds of `training_dp_2` in that run, without its imports; `training_dp` took 0.9."""


def rows(checkout: Path, limit: float) -> Iterator[Row]:
    """One question."""
    watch, problem = Watch(), alpa.read(checkout)
    found = alpa.solve(problem, limit)
    plan = ", ".join(
        f"layers {s.first} to {s.last} on {problem.devices[s.submesh]} with sharding {s.sharding}"
        for s in found.stages
    )
    layers, devices = len(problem.costs), problem.num_devices
    text = f"{layers} layers, {devices} devices, {problem.num_microbatches} micro batches"
    ours, bound, note = finite(found.seconds), finite(found.lower_bound), "costs drawn at random"
    yield Row("alpa", text, "a step", THEIRS, ours, bound, CPU_S, *watch.read(), plan, note)

"""`--trusted`: the envelope of the published runs as rules that a search applies like any other.

The envelope is that of runtimes of the same family: what runs a layout there is the same code. What
a job states (its GPUs, sizes, precision and settings) is no choice of a search, so no rule.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import OFFLOAD_MODULES, RECOMPUTE_MODULES, SCHEDULE_NAMES
from trainplan.costmodel.layouts import FULL, LayoutTable, Rule, module_bits
from trainplan.planner.evidence.envelope import OF_LAYOUT, Envelope, Measurements, measurements
from trainplan.planner.evidence.shape import family_of

OPTION = "--trusted"
"""The option, with which the names of its rules begin."""


def trusted_rules(job: Job, known: Measurements | None = None) -> tuple[Rule, ...]:
    """What keeps a search inside the envelope of the job's runtime.

    Raises:
        SpecError: No run on such a runtime was scored.
    """
    family = family_of(job.runtime)
    inside = (known or measurements()).by_family.get(family)
    if inside is None:
        raise SpecError(
            f"{OPTION}: no scored run is on {family}, so no layout is inside what was measured: "
            "drop it, or choose another --runtime"
        )
    return (*_numbers(inside, family), *_names(inside, family))


def _numbers(inside: Envelope, family: str) -> Iterator[Rule]:
    for name, columns in OF_LAYOUT.items():
        largest = inside.largest[name]
        text = f"{name} <= {largest:g}"
        yield _rule(text, columns, _larger_than(columns, largest), family)


def _larger_than(columns: Sequence[str], largest: float) -> Callable[[LayoutTable], BoolColumn]:
    return lambda table: np.asarray(prod(getattr(table, name) for name in columns) > largest)


def _names(inside: Envelope, family: str) -> Iterator[Rule]:
    """What has no size: only what some run had."""
    schedules = [
        code
        for code, name in enumerate(SCHEDULE_NAMES)
        if _known(inside, "schedule", f"schedule {name}")
    ]
    stages = [stage for stage in range(4) if _known(inside, "zero_stage", f"ZeRO-{stage}")]
    full = _known(inside, "recompute", "recomputed full")
    bits = _unknown_bits(inside, "recompute", "recomputed", RECOMPUTE_MODULES)
    moved = _unknown_bits(inside, "offload_modules", "offloaded", OFFLOAD_MODULES)
    request: Sequence[tuple[str, Sequence[str], Callable[[LayoutTable], BoolColumn]]] = (
        ("schedule", ("schedule",), lambda table: ~np.isin(table.schedule, schedules)),
        ("zero_stage", ("zero_stage",), lambda table: ~np.isin(table.zero_stage, stages)),
        (
            "recompute",
            ("recompute", "recompute_modules"),
            lambda table: (
                ((table.recompute == FULL) & (not full)) | ((table.recompute_modules & bits) != 0)
            ),
        ),
        (
            "offload_modules",
            ("offload_modules",),
            lambda table: (table.offload_modules & moved) != 0,
        ),
    )
    for name, columns, broken in request:
        yield _rule(name, columns, broken, family)


def _known(inside: Envelope, axis: str, word: str) -> bool:
    return word in inside.words[axis]


def _unknown_bits(inside: Envelope, axis: str, verb: str, names: Sequence[str]) -> int:
    """Bits of the modules that no run had."""
    return module_bits([m for m in names if not _known(inside, axis, f"{verb} {m}")], names)


def _rule(
    text: str, columns: Sequence[str], broken: Callable[[LayoutTable], BoolColumn], family: str
) -> Rule:
    return Rule(
        name=f"{OPTION} {text}",
        columns=frozenset(columns),
        broken=lambda job, table: np.asarray(broken(table)),
        says=f"no scored run on {family} has such a layout: drop {OPTION} to try it",
        source="the published runs of docs/accuracy.md",
    )

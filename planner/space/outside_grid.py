"""Values that the user fixed and the search never tries: why no layout is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainplan.costmodel.layouts.table import module_bits
from trainplan.costmodel.spec.layout import (
    OFFLOAD_MODULES,
    RECOMPUTE,
    RECOMPUTE_METHODS,
    SCHEDULE_NAMES,
)
from trainplan.planner.space.choices import Choice
from trainplan.planner.space.grid import Space

MOST_VALUES = 12
"""Values of an axis that are told: those nearest to the one asked for."""


def untried(space: Space, choices: Iterable[Choice]) -> tuple[str, ...]:
    """A sentence for every `--fix` whose value no layout of the grid has, with those it tries."""
    return tuple(
        f"{choice.rule().name}: {_tried(values, choice.value)}"
        for choice in choices
        if not choice.excluded
        and choice.field != "stages"
        and not choice.anything
        and choice.value not in (values := _values(space, choice.field))
    )


def _tried(values: Mapping[float, str], asked: float) -> str:
    """The values of an axis, those nearest to the one asked for where there are many."""
    near = sorted(values, key=lambda value: abs(value - asked))[:MOST_VALUES]
    some = "" if len(near) == len(values) else "among others "
    told = ", ".join(values[value] for value in sorted(near))
    return f"the search tries {some}{told}{' only' if len(values) == 1 else ''}"


def _values(space: Space, field: str) -> Mapping[float, str]:
    """Values of a field in the grid, as columns of a table write them, with their names."""
    traits, tried = space.traits, space.axis_values()
    named: Mapping[str, Mapping[float, str]] = {
        "schedule": {SCHEDULE_NAMES.index(name): name for name in traits.pipeline.schedules},
        "recompute": dict(enumerate(RECOMPUTE)),
        "recompute_method": {n: name or "none" for n, name in enumerate(RECOMPUTE_METHODS)},
        "recompute_modules": {
            module_bits(subset): "+".join(subset) for subset in space.recompute_subsets
        },
        "offload_modules": {
            module_bits(some, OFFLOAD_MODULES): "+".join(some) or "none" for some in space.offloaded
        },
        "offload_optimizer": {
            share: f"{share:g}" for share in traits.offloading.optimizer_fractions
        },
        "dp_replicate": {1: "1"},
    }
    if field in named:
        return named[field]
    none = [0] if field == "recompute_num_layers" else []
    return {float(value): f"{value}" for value in (*none, *tried[field])}

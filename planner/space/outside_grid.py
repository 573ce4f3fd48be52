"""Values that the user fixed and the search never tries: why no layout is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainplan.costmodel.axes import AXIS_OF_COLUMN, Apart
from trainplan.planner.space.choices import Choice
from trainplan.planner.space.grid import Space

MOST_VALUES = 12
"""Values of an axis that are told: those nearest to the one asked for."""


def values_outside_grid(space: Space, choices: Iterable[Choice]) -> tuple[str, ...]:
    """A sentence for every `--fix` whose value no layout of the grid has, with those it tries."""
    return tuple(
        f"{choice.rule().name}: {_tried(values, choice.value)}"
        for choice in choices
        if not choice.excluded
        and not isinstance(AXIS_OF_COLUMN[choice.field].search, Apart)
        and not choice.anything
        and choice.value not in (values := _values(space, choice.field))
    )


def _tried(values: Mapping[float, str], wanted: float) -> str:
    """The values of an axis, those nearest to the one asked for where there are many."""
    near = sorted(values, key=lambda value: abs(value - wanted))[:MOST_VALUES]
    some = "" if len(near) == len(values) else "among others "
    listed = ", ".join(values[value] for value in sorted(near))
    return f"the search tries {some}{listed}{' only' if len(values) == 1 else ''}"


def _values(space: Space, column: str) -> Mapping[float, str]:
    """Values of an axis in the grid, as columns of a table write them, with their names."""
    axis = AXIS_OF_COLUMN[column]
    values = axis.tried(space.job, space.traits)
    return {axis.number(value): axis.codec.text(value) for value in values}

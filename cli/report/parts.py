"""What reports share: cells, tables of numbers, traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from trainplan.cli.render.parts.text import NEVER
from trainplan.cli.report.blocks import Cell, Column, Table
from trainplan.cli.report.charts import SERIES

Value: TypeAlias = str | float | None
"""A word or a number; None is a dash."""
Columns: TypeAlias = Sequence[Column | str]
"""Of a table; those given by their names alone are of words."""


def cell(value: Value, text: str | None = None) -> Cell:
    """A word, or a number that is read as `text` and sorted by its value."""
    if value is None:
        return Cell(NEVER)
    if isinstance(value, str):
        return Cell(value if text is None else text)
    return Cell(f"{value:,.4g}" if text is None else text, float(value))


def table(
    caption: str,
    columns: Columns,
    rows: Iterable[Sequence[Cell | Value]],
    marked: int | None = None,
) -> Table:
    """A table of words and numbers."""
    heads = [Column(one) if isinstance(one, str) else one for one in columns]
    cells = [[one if isinstance(one, Cell) else cell(one) for one in row] for row in rows]
    return Table(caption, heads, cells, marked)


def number(name: str, hint: str = "") -> Column:
    """A column of numbers."""
    return Column(name, numeric=True, hint=hint)


def series(place: int) -> str:
    """Colour of a series by its place."""
    return SERIES[place % len(SERIES)]

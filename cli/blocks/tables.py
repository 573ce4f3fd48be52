"""How tables are made: columns, and rows of the values under them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from trainplan.cli.blocks.blocks import Cell, Column, Drawer, Table, Value, usual

Row: TypeAlias = Sequence[Cell | Value]
"""Of a table."""
Columns: TypeAlias = Sequence[Column | str]
"""Of a table; those given by their names alone are of words."""


def table(
    caption: str,
    columns: Columns,
    rows: Iterable[Row],
    marked: int | None = None,
    spare: Sequence[str] = (),
) -> Table:
    """A table of words and numbers."""
    heads = [Column(one) if isinstance(one, str) else one for one in columns]
    cells = [[head.cell(one) for head, one in zip(heads, row, strict=True)] for row in rows]
    return Table(caption, heads, cells, marked, spare)


def number(
    name: str,
    text: Callable[[Any], str] = usual,
    hint: str = "",
    *,
    screen: str | None = None,
    only: Drawer | None = None,
) -> Column:
    """A column of numbers, each written by `text`."""
    return Column(name, numeric=True, hint=hint, text=text, screen=screen, only=only)

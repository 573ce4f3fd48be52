"""How tables are made: columns, and rows of the values under them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

from trainplan.cli.blocks.blocks import Cell, Column, Drawer, Table, Value, usual
from trainplan.cli.words import seconds_like

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


def bar_column(width: int, head: str = "") -> Column:
    """A column of shares as bars, on a terminal alone."""
    return Column(head, only="screen", bar=width)


def like(whole: float) -> Callable[[float], str]:
    """Writes seconds with as many digits as the whole has."""
    return partial(seconds_like, whole=whole)


def signed(fraction: float) -> str:
    """Writes a fraction in percent, with its sign."""
    return f"{fraction * 100:+.1f} %"


def alike_joined(rows: Iterable[Sequence[Cell]]) -> list[Sequence[Cell]]:
    """Rows of ranks, neighbours that read alike as one: `4-7`; the first cell is the rank."""
    joined: list[Sequence[Cell]] = []
    for _, group in groupby(rows, key=lambda row: [cell.text for cell in row[1:]]):
        ranks = [*group]
        ends = dict.fromkeys((ranks[0][0].text, ranks[-1][0].text))
        joined.append((Cell("-".join(ends)), *ranks[0][1:]))
    return joined

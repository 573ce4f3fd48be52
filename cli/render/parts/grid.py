"""Tables: aligned columns, no lines, no cut-off text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

MANY_COLUMNS = 15
"""More than that stand closer together."""


@dataclass(frozen=True, slots=True)
class Column:
    """Head of one column."""

    name: str
    numeric: bool = True
    """Right-aligned and never wrapped."""


def grid(columns: Sequence[Column], rows: Iterable[Sequence[RenderableType]]) -> Table:
    """A table; text columns wrap, numbers do not."""
    gap = 2 if len(columns) <= MANY_COLUMNS else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            Text(column.name),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    return table


def bar(share: float, width: int) -> Text:
    """A bar of `share` (0 to 1) of `width`, in eighths of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return Text("█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else ""), style="cyan")

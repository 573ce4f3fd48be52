"""Tables: aligned columns, no lines, no cut-off text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

MANY_COLUMNS = 15
"""More than that stand closer together."""


class Words(str):
    """Head of a column of words: left-aligned and wrapped; other columns are numbers."""

    __slots__ = ()


def grid(heads: Sequence[str], rows: Iterable[Sequence[RenderableType]]) -> Table:
    """A table; text columns wrap, numbers do not."""
    gap = 2 if len(heads) <= MANY_COLUMNS else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for head in heads:
        numeric = not isinstance(head, Words)
        justify: JustifyMethod = "right" if numeric else "left"
        table.add_column(Text(head), justify=justify, no_wrap=numeric, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def bar(share: float, width: int) -> Text:
    """A bar of `share` (0 to 1) of `width`, in eighths of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return Text("█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else ""), style="cyan")

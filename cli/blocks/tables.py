"""What reports share: cells, tables of numbers, axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, log10
from typing import TypeAlias

from trainplan.cli.blocks.blocks import Cell, Column, Table
from trainplan.cli.blocks.figures import SERIES
from trainplan.cli.words import NEVER, gib, percent, seconds, seconds_like

Value: TypeAlias = str | float | None
"""A word or a number; None is a dash."""
Row: TypeAlias = Sequence[Cell | Value]
"""Of a table."""
Columns: TypeAlias = Sequence[Column | str]
"""Of a table; those given by their names alone are of words."""

PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
FEW_DECADES = 3
"""With as many, an axis has ticks within them."""


def cell(value: Value, text: str | None = None) -> Cell:
    """A word, or a number that is read as `text` and sorted by its value."""
    if value is None:
        return Cell(NEVER)
    if isinstance(value, str):
        return Cell(value if text is None else text)
    if text is None:
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return Cell(text, float(value))


def seconds_cell(value: float | None, whole: float | None = None) -> Cell:
    """Seconds, with as many digits as `whole` has."""
    if value is None:
        return cell(None)
    return Cell(seconds(value) if whole is None else seconds_like(value, whole), value)


def share_cell(fraction: float | None, digits: int = 1) -> Cell:
    """In percent."""
    return cell(fraction, None if fraction is None else percent(fraction, digits))


def gib_cell(value: float | None) -> Cell:
    """Bytes, read as GiB."""
    return cell(value, None if value is None else gib(value))


def table(
    caption: str,
    columns: Columns,
    rows: Iterable[Row],
    marked: int | None = None,
) -> Table:
    """A table of words and numbers."""
    heads = [Column(one) if isinstance(one, str) else one for one in columns]
    cells = [[one if isinstance(one, Cell) else cell(one) for one in row] for row in rows]
    return Table(caption, heads, cells, marked)


def number(name: str, hint: str = "") -> Column:
    """A column of numbers."""
    return Column(name, numeric=True, hint=hint)


def short(value: float, unit: str = "") -> str:
    """A number with a prefix of its unit: `200k`, `5 ms`, `16 MB`."""
    power = min(max(3 * floor(log10(value) / 3 + 1e-9), min(PREFIXES)), max(PREFIXES))
    return f"{value / 10**power:g}{' ' * bool(unit)}{PREFIXES[power]}{unit}"


def log_axis(values: Iterable[float], text: Callable[[float], str] = short) -> dict[str, object]:
    """A logarithmic axis with a written tick at 1, 2 and 5, or over many decades at 1 alone."""
    known = [value for value in values if value > 0]
    if not known:
        return {"type": "log"}
    low, high = floor(log10(min(known))), ceil(log10(max(known)))
    steps = (1, 2, 5) if high - low <= FEW_DECADES else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [text(tick) for tick in ticks]}


def series(place: int) -> str:
    """Colour of a series by its place."""
    return SERIES[place % len(SERIES)]

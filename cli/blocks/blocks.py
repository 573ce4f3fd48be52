"""What an answer shows, as frozen values: `screen` draws them on a terminal, `html` in a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from trainplan.cli.words import NEVER

Figure: TypeAlias = Mapping[str, object]
"""A figure of plotly: `data` and `layout`, in JSON. A colour is a name of `figures.COLOURS`."""
Tone: TypeAlias = Literal["plain", "good", "doubtful", "bad"]
Drawer: TypeAlias = Literal["screen", "page"]
Value: TypeAlias = str | float | None
"""A word or a number; None is a dash."""


def usual(value: Value) -> str:
    """A value where its column states no more: words as they are, numbers with four digits."""
    if value is None or isinstance(value, str):
        return NEVER if value is None else value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: what is read, and the number it is sorted by."""

    text: str
    value: float | None = None
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers are on the right."""

    name: str
    numeric: bool = False
    hint: str = ""
    """What the column means, in one sentence."""
    text: Callable[[Any], str] = usual
    """How a number of it is written."""
    screen: str | None = None
    """Its head on a terminal, where that is another."""
    only: Drawer | None = None
    """The one that draws it; None: both."""
    bar: int = 0
    """Of a column of shares that a terminal draws as bars: their width."""

    def cell(self, value: Cell | Value) -> Cell:
        """A value as the column writes it."""
        if isinstance(value, Cell):
            return value
        if value is None or isinstance(value, str):
            return Cell(usual(value))
        return Cell(self.text(value), float(value))


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain sentences."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Fact:
    """A number of the first lines: what it is, its value with its unit, and a note."""

    name: str
    value: str
    note: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Facts:
    """Numbers side by side."""

    facts: Sequence[Fact]
    wide: bool = False
    """With notes of some sentences each."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; in a report a click on a heading sorts."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    marked: int | None = None
    """Row that is the answer."""
    spare: Sequence[str] = ()
    """Columns that a narrow terminal may leave out, the first first; a narrow page has none."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, its finding in a sentence, and its numbers as a table; a terminal draws none."""

    name: str
    """Unique on the page, of letters, digits and dashes."""
    caption: str
    """What is drawn, with units."""
    says: str
    """What is to be seen, in a sentence: also what a screen reader reads."""
    figure: Figure
    numbers: Table
    height: int = 360
    """Pixels."""
    half: bool = False
    """Of the width of a wide page, so that two are side by side."""
    zooms: bool = False
    """Along its horizontal axis, with buttons and by dragging."""


@dataclass(frozen=True, slots=True)
class Code:
    """A file or a command, with a button that copies it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks behind a line that opens them."""

    title: str
    blocks: Sequence[Block]


Block: TypeAlias = Paragraph | Facts | Table | Chart | Code | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    name: str
    """Its anchor, of letters, digits and dashes."""
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Page:
    """A report: the answer first, its certainty, then sections."""

    title: str
    """Of the document and the browser's tab."""
    answer: str
    """The first line."""
    certainty: Sequence[Paragraph | Facts]
    """How sure it is: what is proved, what is only modelled."""
    sections: Sequence[Section]
    facts: Facts = field(default_factory=lambda: Facts(()))
    """Next to the answer."""


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

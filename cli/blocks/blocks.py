"""What a report is made of: frozen values without HTML; `page` writes and escapes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Figure: TypeAlias = Mapping[str, object]
"""A figure of plotly: `data` and `layout`, in JSON. A colour is a name of `charts.COLOURS`."""
Tone: TypeAlias = Literal["plain", "good", "doubtful", "bad"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: what is read, and the number it is sorted by."""

    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers stand to the right."""

    name: str
    numeric: bool = False
    hint: str = ""
    """What the column means, in one sentence."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain sentences."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that stands out: what it is, its value with its unit, and what it is beside."""

    name: str
    value: str
    note: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Facts:
    """Numbers side by side."""

    facts: Sequence[Fact]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; a click on a heading sorts."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    marked: int | None = None
    """Row that is the answer."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, the sentence it says, and its numbers as a table."""

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
    zooms: bool = False
    """Along its horizontal axis, with buttons beside dragging."""


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
    certainty: Sequence[Paragraph]
    """How sure it is: what is proved, what is only modelled."""
    sections: Sequence[Section]
    facts: Facts = field(default_factory=lambda: Facts(()))
    """Beside the answer."""

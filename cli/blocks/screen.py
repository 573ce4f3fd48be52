"""Blocks on a terminal: tables are aligned columns without lines, on lines of any length.

Where a table is wider than the page, columns close up; then those of least use go, and it is
printed which; a table that is still too wide becomes a paragraph for each row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from trainplan.cli.blocks.blocks import Cell, Column, Paragraph, Table, Tone
from trainplan.cli.terminal import WIDEST
from trainplan.cli.words import DOT

MANY_COLUMNS = 15
"""More than that are closer together."""
PROSE = 24
"""Columns in which a text can be read."""
INDENT = 2
"""Of the further lines of a row that is a paragraph."""
TOGETHER = "\ue000"
"""Is a space at which no line ends, until lines are made."""
STYLES: dict[Tone, str] = {"plain": "", "good": "green", "doubtful": "yellow", "bad": "bold red"}

Part = RenderableType | Table | Paragraph
"""Of a page: a block, or what only a terminal shows."""


def drawn(part: Part) -> RenderableType:
    """A part of a page as a terminal shows it."""
    if isinstance(part, Table):
        return _grid(part)
    return Text(part.text, style=STYLES[part.tone]) if isinstance(part, Paragraph) else part


def stacked(*parts: Part) -> Group:
    """Parts one below the other, no empty line between them."""
    return Group(*map(drawn, parts))


def headed(title: str, *parts: Part) -> Group:
    """The same below a heading."""
    return stacked(Text(title, style="bold"), *parts)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table for a page of any width."""

    columns: tuple[Column, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    spare: tuple[str, ...] = ()
    """Heads of columns that may be left out, the first of them first."""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RichTable | Text]:
        width = options.max_width
        kept, gap = self._kept(width)
        if not kept:
            yield from self._paragraphs(console, width)
            return
        yield self._table(kept, gap, width)
        hidden = [
            head
            for place, head in enumerate(self.heads)
            if place not in kept and not self.columns[place].bar
        ]
        if hidden:
            whole = self._least(range(len(self.heads)), 1)
            wider = f"a terminal of {whole} columns or " if whole <= WIDEST else ""
            yield Text(f"not shown for lack of room: {', '.join(hidden)}; {wider}--json has all")

    @property
    def _gap(self) -> int:
        return 2 if len(self.heads) <= MANY_COLUMNS else 1

    def _kept(self, width: int) -> tuple[list[int], int]:
        """Places of the columns for which there is room, and the gap between them; or none."""
        kept = list(range(len(self.heads)))
        if self._least(kept, self._gap) <= width:
            return kept, self._gap
        bars = [i for i in kept if self.columns[i].bar]
        for goes in (*bars, *map(self.heads.index, self.spare), None):
            if self._least(kept, 1) <= width:
                gap = self._gap if self._least(kept, self._gap) <= width else 1
                return kept, gap
            if goes in kept:
                kept.remove(goes)
        return [], 0

    def _least(self, kept: Sequence[int], gap: int) -> int:
        """Columns of the page that a table needs."""
        return sum(map(self._needed, kept)) + gap * (len(kept) - 1)

    def _natural(self, column: int) -> int:
        """The longest line of a column."""
        return max(map(cell_len, self._lines(column)))

    def _needed(self, column: int) -> int:
        """Numbers need all of it; words may be wrapped, but not at every one."""
        natural = self._natural(column)
        if self.columns[column].numeric or self.columns[column].bar:
            return natural
        words = (word for line in self._lines(column) for word in line.split())
        longest = max(map(cell_len, words), default=0)
        return min(natural, max(PROSE, min(longest, 2 * PROSE)))

    def _lines(self, column: int) -> Iterator[str]:
        yield self.heads[column]
        for row in self.rows:
            yield from row[column].plain.split("\n")

    def _table(self, kept: Sequence[int], gap: int, width: int) -> RichTable:
        table = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
        for column, size in zip(kept, self._widths(kept, gap, width), strict=True):
            head = self.heads[column]
            numeric = self.columns[column].numeric
            justify: JustifyMethod = "right" if numeric else "left"
            table.add_column(
                Text(head), justify=justify, no_wrap=numeric, overflow="fold", width=size
            )
        for row in self.rows:
            table.add_row(*(row[i] for i in kept))
        return table

    def _widths(self, kept: Sequence[int], gap: int, width: int) -> list[int]:
        """As they are, or the widest words cut to what is left."""
        natural, least = map(self._natural, kept), [self._needed(i) for i in kept]
        sizes = list(natural)
        over = sum(sizes) + gap * (len(kept) - 1) - width
        while over > 0:
            widest = max(range(len(kept)), key=lambda i: (sizes[i] > least[i], sizes[i]))
            sizes[widest] -= 1
            over -= 1
        return sizes

    def _paragraphs(self, console: Console, width: int) -> Iterator[Text]:
        """A paragraph for each row: heads and cells."""
        for row in self.rows:
            text = Text()
            for column, head, cell in zip(self.columns, self.heads, row, strict=True):
                if cell.plain and not column.bar:
                    space = TOGETHER if column.numeric else " "
                    text.append(DOT if text else "")
                    text.append(space.join(f"{head} ".split(" ")) if head else "", "dim")
                    text.append(space.join(cell.plain.split()), cell.style)
            for number, line in enumerate(text.wrap(console, width - INDENT, overflow="fold")):
                line.plain = line.plain.replace(TOGETHER, " ")
                yield Text(" " * INDENT * bool(number)).append_text(line)


def _grid(table: Table) -> Grid:
    """Those columns of a table that a terminal draws; `spare` are their heads there."""
    shown = [i for i, column in enumerate(table.columns) if column.only != "page"]
    columns = tuple(table.columns[i] for i in shown)
    heads = tuple(one.name if one.screen is None else one.screen for one in columns)
    rows = (tuple(_text(table.columns[i], row[i]) for i in shown) for row in table.rows)
    return Grid(columns, heads, tuple(rows), tuple(name for name in table.spare if name in heads))


def _text(column: Column, cell: Cell) -> Text:
    if column.bar:
        return Text("") if cell.value is None else bar(cell.value, column.bar)
    return Text(cell.text, style=STYLES[cell.tone])


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture as wide as the page, or as requested."""

    draw: Callable[[int], RenderableType]
    """Makes it, from its width."""
    width: int | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield self.draw(self.width or options.max_width)


def bar(share: float, width: int) -> Text:
    """A bar of `share` (0 to 1) of `width`, in eighths of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return Text("█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else ""), style="cyan")

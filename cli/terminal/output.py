"""The only writer to the terminal: results to stdout, all else to stderr.

Lines are as long as the terminal, and 100 columns where there is none.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainplan.cli.terminal.characters import encoding_of, plain, spelled
from trainplan.cli.terminal.listener import LISTENER
from trainplan.cli.terminal.text import NARROWEST, WIDEST, WIDTH, escaped

WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
"""Of a command line: spaces in quotes part no words."""


def write(text: str) -> None:
    """Write to stdout at once, so that a reader who left is noticed here."""
    if sys.stdout is not None:  # None: started with stdout closed
        sys.stdout.write(spelled(text, encoding_of(sys.stdout)))
        sys.stdout.flush()


def page_width() -> int:
    """Columns of a page: those of the terminal, or of `COLUMNS`; `WIDTH` where there is none."""
    if not _is_terminal():
        return WIDTH
    columns = shutil.get_terminal_size((WIDTH, 24)).columns
    return max(NARROWEST, min(columns, WIDEST))


def show(*parts: RenderableType, width: int | None = None) -> None:
    """Print parts one below the other, an empty line between them; colour on a terminal only."""
    text = page_text(*parts, width=width or page_width(), terminal=_is_terminal())
    write(plain(text, encoding_of(sys.stdout)))


def page_text(*parts: RenderableType, width: int = WIDTH, terminal: bool = False) -> str:
    """A page whose lines are no longer than that, with colour where it is for a terminal."""
    page = io.StringIO()
    console = Console(
        file=page,
        force_terminal=True if terminal else None,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for number, part in enumerate(parts):
        if number:
            console.print()
        console.print(part)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()) + "\n"


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def answer(
    document: Mapping[str, object], page: Iterable[RenderableType], *, as_json: bool
) -> None:
    """Print an answer as its public document or as a page, or give both to who listens."""
    listener = LISTENER.get()
    if listener is not None:
        listener.answered(document, page)
    elif as_json:
        show_json(document)
    else:
        show(*page)


def show_json(document: Mapping[str, object]) -> None:
    """Print one JSON document."""
    write(json_text(document))


def json_text(document: Mapping[str, object]) -> str:
    """A document as it is printed and stored."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def json_line(document: object) -> str:
    """One event of a stream: a JSON document on a line."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def remark(text: str) -> None:
    """Say something that is not the answer."""
    click.echo(plain(escaped(text), encoding_of(sys.stderr)), err=True)


def section(title: str, *lines: str) -> Group:
    """A heading and lines below it, further in; a command stays one that can be pasted."""
    parts = (Command(line) if line.startswith("plan ") else Text(line) for line in lines)
    return Group(Text(title, style="bold"), *(Padding(part, (0, 0, 0, 2)) for part in parts))


@dataclass(frozen=True, slots=True)
class Command:
    """A command on as many lines as it needs, each but the last with a backslash at its end."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        line, room = "", options.max_width - len(" \\")
        if len(self.text) <= options.max_width:
            room = options.max_width
        for word in WORD.findall(self.text):
            if line and len(f"{line} {word}") > room:
                yield Text(f"{line} \\")
                line = f"  {word}"
            else:
                line = f"{line} {word}" if line else word
        yield Text(line)

"""The only writer to the terminal: results to stdout, all else to stderr, 100 columns at most."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping

import click
from rich.console import Console, RenderableType
from rich.text import Text

from trainplan.cli.terminal.listener import LISTENER
from trainplan.cli.terminal.text import WIDTH, escaped


def write(text: str) -> None:
    """Write to stdout at once, so that a reader who left is noticed here."""
    if sys.stdout is not None:  # None: started with stdout closed
        sys.stdout.write(text)
        sys.stdout.flush()


def show(*parts: RenderableType, width: int = WIDTH) -> None:
    """Print parts one below the other, an empty line between them; colour on a terminal only."""
    write(page_text(*parts, width=width, terminal=_is_terminal()))


def page_text(*parts: RenderableType, width: int = WIDTH, terminal: bool = False) -> str:
    """Parts one below the other as text, with colour where it is for a terminal."""
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
    click.echo(escaped(text), err=True)


def section(title: str, *lines: str) -> Text:
    """A heading and lines below it."""
    text = Text(title, style="bold")
    for line in lines:
        text.append(f"\n  {line}", style="not bold")
    return text

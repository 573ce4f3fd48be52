"""The only writer to the terminal: results to stdout, all else to stderr.

Lines are as long as the terminal, and 100 columns where there is none.
"""

import json
import shutil
import sys
from collections.abc import Mapping

import click

from trainplan.cli.terminal.characters import encoding_of, plain, spelled
from trainplan.cli.terminal.text import NARROWEST, WIDEST, WIDTH, escaped


def write(text: str) -> None:
    """Write to stdout at once, so that a reader who left is noticed here."""
    if sys.stdout is not None:  # None: started with stdout closed
        sys.stdout.write(spelled(text, encoding_of(sys.stdout)))
        sys.stdout.flush()


def write_page(text: str) -> None:
    """Write a page, what the stream lacks of its signs drawn with ASCII."""
    write(plain(text, encoding_of(sys.stdout)))


def page_width() -> int:
    """Columns of a page: those of the terminal, or of `COLUMNS`; `WIDTH` where there is none."""
    if not is_terminal():
        return WIDTH
    columns = shutil.get_terminal_size((WIDTH, 24)).columns
    return max(NARROWEST, min(columns, WIDEST))


def is_terminal() -> bool:
    """Does the answer go to one?"""
    return sys.stdout is not None and sys.stdout.isatty()


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
    """Print something that is not the answer."""
    click.echo(plain(escaped(text), encoding_of(sys.stderr)), err=True)

"""One call, in the process begun for it: the command runs as it does for who types it."""

import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import islice
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path

import click
from rich.console import RenderableType

from trainplan.cli.blocks import page_text
from trainplan.cli.files import Looks
from trainplan.cli.processes import follow_search, tried
from trainplan.cli.serve.command_line import command_line
from trainplan.cli.serve.fields import Request
from trainplan.cli.serve.inline import invoke
from trainplan.cli.terminal import LISTENER, bug_line, json_text, one_line
from trainplan.costmodel.base import PlanError

SHOWN_PARTS, SHOWN_LINES = 2, 30
"""Of the page that people read."""
NOTE_EVERY_S = 0.2
"""Seconds between two notes of progress."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call may take."""

    time_limit_s: float
    """Where the client states none."""
    most_time_s: float
    calls: int
    """At the same time."""
    input_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call: a command, with what it may read and use."""

    command: str
    request: Request
    extra: tuple[str, ...]
    """Options that the server adds."""
    plans: Mapping[str, str]
    """Documents that were kept, by their names."""
    folder: Path
    """Empty: documents that are given inline are written into it."""
    readable: tuple[Path, ...]
    """Folders whose files may be read as well."""
    writable: Path | None = None
    """Where new files are made; null: nowhere."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is."""

    done: float = 0.0
    bound_s: float = 0.0
    best_s: float = inf


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed: its document and first lines, or why it refuses."""

    document: str = ""
    """JSON; empty where there is an error."""
    lines: str = ""
    remarks: tuple[str, ...] = ()
    error: str = ""
    looks: Looks = field(default_factory=Looks)
    """At files outside the folder of the call."""


@dataclass(slots=True)
class _Heard:
    """What a command prints, while it runs."""

    line: Connection
    document: str = ""
    lines: str = ""
    stated: float = field(default_factory=time.monotonic)

    def answered(
        self, document: Mapping[str, object], page: Iterable[RenderableType], found: object
    ) -> None:
        """Keep the document and the first parts of the page."""
        self.document = json_text(document)
        shown = page_text(*islice(page, SHOWN_PARTS)).splitlines()
        more = ("...",) if len(shown) > SHOWN_LINES else ()
        self.lines = "\n".join((*shown[:SHOWN_LINES], *more))

    def progressed(self, done: float, bound_s: float, best_s: float) -> bool:
        """Report to the server, now and then."""
        now = time.monotonic()
        if now - self.stated >= NOTE_EVERY_S:
            self.stated = now
            self.line.send(Progress(done, bound_s, best_s))
        return True


def work(call: Call, line: Connection) -> None:
    """Answer a call over the line."""
    follow_search()
    line.send(tried(partial(answer, call, line)))


def answer(call: Call, line: Connection) -> Answer:
    """Run the command of a call; nothing it prints gets anywhere, and it reads no other file."""
    heard, remarks, looks = _Heard(line), StringIO(), Looks((call.folder, *call.readable))
    looks.begin()
    LISTENER.set(heard)
    with redirect_stdout(StringIO()), redirect_stderr(remarks):
        error = _run(call)
    plain = partial(_without, call.folder)
    stated = tuple(map(plain, remarks.getvalue().splitlines()))
    if heard.document:
        shown = plain(heard.document), plain(heard.lines)
        return Answer(*shown, stated, looks=looks.outside(call.folder))
    return Answer(error=plain(error) or "; ".join(stated) or "there is no answer")


def _run(call: Call) -> str:
    """What is wrong, in one line; empty: nothing."""
    try:
        words = command_line(call.command, call.request, call.plans, call.folder, call.writable)
        invoke(_with(words, call.extra))
    except click.exceptions.Exit:
        return ""
    except (click.ClickException, PlanError) as error:
        return one_line(error)
    except Exception as error:  # noqa: BLE001 (a bug is said, and the server goes on)
        return bug_line(error)
    return ""


def _with(words: tuple[str, ...], extra: tuple[str, ...]) -> tuple[str, ...]:
    """Options come before the words that are none."""
    end = words.index("--")
    return (*words[:end], *extra, *words[end:])


def _without(folder: Path, text: str) -> str:
    """Documents that were given inline are called by their names alone."""
    return text.replace(f"{folder / 'launch'}/", "").replace(f"{folder}/", "")

"""Pages on a terminal: an answer as its page or its document, to its caller."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group
from rich.padding import Padding
from rich.text import Text

from trainplan.cli.blocks.screen import Part, drawn
from trainplan.cli.terminal import LISTENER, WIDTH, is_terminal, page_width, show_json, write_page

WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
"""Of a command line: spaces in quotes part no words."""


def answer(
    document: Mapping[str, object],
    page: Iterable[Part],
    *,
    as_json: bool,
    found: object = None,
    then: Iterable[Part] = (),
) -> None:
    """Print an answer as its public document or as a page, or give both to who listens.

    `found`: its value, for programs. `then`: what to type next, for a terminal alone.
    """
    listener = LISTENER.get()
    if listener is not None:
        listener.answered(document, map(drawn, page), found)
    elif as_json:
        show_json(document)
    else:
        show(*page, *then)


def show(*parts: Part, width: int | None = None) -> None:
    """Print parts one below the other, an empty line between them; colour on a terminal only."""
    text = page_text(*parts, width=width or page_width(), terminal=is_terminal() or None)
    write_page(text)


def page_text(*parts: Part, width: int = WIDTH, terminal: bool | None = False) -> str:
    """A page whose lines are no longer than that, with colour where it is for a terminal.

    None: where the environment sets it.
    """
    page = io.StringIO()
    console = Console(
        file=page,
        force_terminal=terminal,
        force_jupyter=False,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for number, part in enumerate(parts):
        if number:
            console.print()
        console.print(drawn(part))
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()) + "\n"


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

"""The page of rooms: what each folder below a package is, and what its door offers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from page_parts import Lines, table

ROOT = Path(__file__).parents[2]
PACKAGES = ("costmodel", "planner", "profiler", "cli")
NAMED = re.compile(r"^(\w+): ", re.MULTILINE)


def rooms_page() -> Lines:
    """Every room of every package."""
    yield from ("# Rooms", "")
    yield "A room is a folder directly below a package, or a module there. From outside only the"
    yield "names of its `__init__` are imported, whose docstring says each in a line"
    yield "([decision](../decisions/0020-rooms-have-doors.md)). Read a door before the room, and"
    yield "[twelve files](../start/extend.md#twelve-files) before the doors."
    yield ""
    for package in PACKAGES:
        yield from (f"## {package}", "")
        doors = sorted((ROOT / package).glob("*/__init__.py"))
        texts = {door.parent.name: ast.get_docstring(ast.parse(door.read_text())) for door in doors}
        rows = [
            (f"`{room}`", text.split("\n\n")[0], ", ".join(f"`{n}`" for n in NAMED.findall(text)))
            for room, text in texts.items()
            if text
        ]
        yield from table(("room", "what it is", "its door"), rows)

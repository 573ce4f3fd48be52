"""The door of a room whose names are imported when they are first used."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

IMPORTED = re.compile(r"^    from (trainplan\.[\w.]+) import (\([^)]*\)|.*)$", re.MULTILINE)
"""What a room imports for a type checker alone."""


def door(room: str) -> Callable[[str], object]:
    """`__getattr__` of a room (PEP 562): a name is where its text imports it for a type checker."""
    loader: Any = sys.modules[room].__loader__
    found = IMPORTED.findall(loader.get_source(room))
    homes = {name: home for home, names in found for name in re.findall(r"\w+", names)}

    def imported(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value: object = getattr(import_module(homes[name]), name)
        setattr(sys.modules[room], name, value)
        return value

    return imported

"""The door of a room whose names are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def door(room: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """`__getattr__` of a room, of the names of each of its modules (PEP 562)."""
    of_name = {name: home for home, names in homes.items() for name in names.split()}

    def imported(name: str) -> object:
        if name not in of_name:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{room}.{of_name[name]}"), name)
        setattr(sys.modules[room], name, value)
        return value

    return imported

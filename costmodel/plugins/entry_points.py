"""Installations that declare plug-ins of ours: what is asked before anything of them is loaded."""

import os
import sys
from collections.abc import Iterator
from functools import cache

GROUP = "trainplan.plugins"
"""Group of the entry points whose values are `costmodel.plugins.Plugin`."""


@cache
def declaring() -> tuple[str, ...]:
    """Folders that record an installation with such an entry point, in the order of the path.

    Read as files: `importlib.metadata` takes thirty times as long. Source: packaging.python.org,
    "Recording installed projects" and "Entry points specification"; measured, 1 ms for 91
    installations.
    """
    mark = f"[{GROUP}]".encode()
    return tuple(record for record in _records() if mark in _entry_points(record))


def _records() -> Iterator[str]:
    for folder in dict.fromkeys(sys.path):
        try:
            with os.scandir(folder or ".") as found:
                yield from [one.path for one in found if one.name.endswith(".dist-info")]
        except OSError:
            continue  # a ZIP file, or none


def _entry_points(record: str) -> bytes:
    try:
        # pathlib would take longer to load than all of this
        with open(f"{record}/entry_points.txt", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""

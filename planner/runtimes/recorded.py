"""Options of the releases that exporters are written for."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources


@cache
def recorded(file: str) -> frozenset[str]:
    """Those in a file of this folder, or of another package: `package:file`; of no file, none."""
    if not file:
        return frozenset()
    package, _, name = file.rpartition(":")
    text = resources.files(package or __package__).joinpath(name).read_text("utf-8")
    return frozenset(json.loads(text)["flags"])

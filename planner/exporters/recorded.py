"""Options of the releases that exporters are written for."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources


@cache
def recorded(file: str) -> frozenset[str]:
    """Those in a file of this folder."""
    text = resources.files(__package__).joinpath(file).read_text("utf-8")
    return frozenset(json.loads(text)["flags"])

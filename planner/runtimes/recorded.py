"""Options of the releases that exporters are written for."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources


@cache
def recorded(file: str) -> frozenset[str]:
    """Those in a file of this folder, or of another package: `package:file`; of no file, none.

    A file that names another as its `base` has what that one has, in its `section`.
    """
    if not file:
        return frozenset()
    package, _, name = file.rpartition(":")
    text = resources.files(package or __package__).joinpath(name).read_text("utf-8")
    read = json.loads(text)
    base = (flag.removeprefix("--") for flag in recorded(read["base"])) if "base" in read else ()
    return frozenset((*read["flags"], *(f"--{read['section']}.{name}" for name in base)))

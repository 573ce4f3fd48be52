"""Names that scripts have for a model, a length, a batch and adapters: the table `names.json`."""

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def table(name: str) -> dict[str, Any]:
    """A table of this folder; its `source` says where the names stand."""
    text = resources.files(__package__).joinpath(f"{name}.json").read_text("utf-8")
    read: dict[str, Any] = json.loads(text)
    return read


NAMES = table("names")

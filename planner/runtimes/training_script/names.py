"""Names that scripts have for a model, a length, a batch and adapters: the table `names.json`."""

import json
import re
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
TOWER = "the vision tower and its tokens are not priced: the price is of the language model"


def sees(name: str) -> bool:
    """Is a model, or what trains one, named as one of vision and language?"""
    return re.search(NAMES["vision"], name[-LONGEST:]) is not None


LONGEST = 200
"""Characters of a name."""

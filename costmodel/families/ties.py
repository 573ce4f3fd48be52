"""Is the head of a decoder inside a larger configuration its token table?"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, cast

from trainplan.costmodel.families.reader import HfConfig

TIES: Final = "tables/ties.json"
"""`model_type` -> `y` or `n` for each pair of what the whole file and its section say, in the order
of `STATED`, the section's first.

Source: transformers 5.24, every class on the meta device; written by
tests/oracles/record_composites.py."""
STATED: Final = (None, True, False)
NAME: Final = "tie_word_embeddings"


@cache
def _ties() -> Mapping[str, str]:
    text = files("trainplan.costmodel.families").joinpath(TIES).read_text("utf-8")
    return cast("dict[str, str]", json.loads(text))


def tied(whole: HfConfig, section: HfConfig | None) -> Mapping[str, object]:
    """What the class of a file makes of its fields, as a field of the decoder; nothing: unstated.

    Of a class that is not known the decoder is tied where either says so.
    """
    parts = (whole, section or whole)
    outer, inner = (one.with_defaults({NAME: None}).optional_boolean(NAME) for one in parts)
    known = _ties().get(whole.model_type)
    if known:
        place = len(STATED) * STATED.index(outer) + STATED.index(inner)
        return {NAME: known[place] == "y"}
    if outer is None and inner is None:
        return {}
    return {NAME: bool(outer or inner)}

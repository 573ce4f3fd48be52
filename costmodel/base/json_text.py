"""The JSON of users, read in bounds: no key twice, no number that is none, no endless nesting."""

import json
import math
from collections.abc import Collection, Iterable
from typing import TypeGuard

MOST_NESTED = 64
"""Lists and mappings within each other; no document of ours has ten."""
_NESTED = f"nested too deeply: {MOST_NESTED} lists and mappings within each other at most"


def read_json(text: str, *, endless: Collection[str] = ()) -> object:
    """What a text holds; the only reader of JSON that a user wrote.

    `endless` names keys of which a value may be infinite, as Python writes it into JSON.

    Raises:
        ValueError: It is no JSON, a key is there twice, a number is not finite, or it is nested too
            deeply.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        values = dict(pairs)
        if len(values) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"key {twice!r} appears twice: remove one")
        for name, value in pairs:
            _require_finite(value, f"field {name!r}: ", endless=name in endless)
        return values

    try:
        values: object = json.loads(text, object_pairs_hook=unique, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(_NESTED) from error
    if _nested_too_deeply(values):
        raise ValueError(_NESTED)
    _require_finite(values, "")
    return values


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large: write a finite number")
    return value


def _require_finite(value: object, where: str, *, endless: bool = False) -> None:
    """Of a number, and of those in lists; mappings were read before what holds them."""
    if isinstance(value, list):
        for one in value:
            _require_finite(one, where, endless=endless)
    elif isinstance(value, float) and not (math.isfinite(value) or (endless and value > 0)):
        raise ValueError(
            f"{where}{json.dumps(value)} is not a number JSON allows: write a finite one"
        )


def _nested_too_deeply(value: object) -> bool:
    """Would what walks it run out of stack?"""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        parts: Iterable[Iterable[object]]
        parts = (one.values() if isinstance(one, dict) else one for one in level if _is_nest(one))
        level = [part for some in parts for part in some if _is_nest(part)]
    return bool(level)


def _is_nest(value: object) -> TypeGuard[dict[object, object] | list[object]]:
    return isinstance(value, dict | list)

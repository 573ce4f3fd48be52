"""An answer within bounds: the parts that are requested, and what was cut."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from trainplan.costmodel.base import SpecError

ENTRIES = 20
"""A mapping with more keys is a list of entries by name."""
LISTED = 30
"""Names that an error lists."""

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class Shown:
    """What is given of a document, and what is noted of the rest."""

    document: Document
    notes: tuple[str, ...]


def shown(document: Document, parts: Sequence[str] | None, most_bytes: int) -> Shown:
    """The parts of a document, shortened to so many bytes of JSON.

    The longest values are cut to one size: lists to their first entries, mappings of few keys by
    the same rule; what has no entries is left out whole.

    Raises:
        SpecError: There is no such part.
    """
    return _fitted(document if parts is None else _parts(document, parts), most_bytes)


def _fitted(document: Document, most_bytes: int, within: str = "") -> Shown:
    """A document in so many bytes; `within` is the key that it is under, with a dot."""
    sizes = {key: _bytes(value) for key, value in document.items()}
    most = _level(sizes.values(), most_bytes - (_bytes(document) - sum(sizes.values())))
    longest = sorted((key for key in sizes if sizes[key] > most), key=lambda key: -sizes[key])
    cut, notes = dict(document), list[str]()
    for key in longest:
        kept, stated = _shortened(document[key], most, f"{within}{key}")
        if not kept:
            rest = {one: value for one, value in document.items() if one != key}
            others = _fitted(rest, most_bytes, within)
            note = f"{within}{key}: left out, {sizes[key]:,} bytes"
            return Shown(others.document, (note, *others.notes))
        cut[key] = kept
        notes += stated
    return Shown(cut, tuple(notes))


def _level(sizes: Iterable[int], room: int) -> float:
    """The largest size that all may have which are cut, so that they fit together."""
    ordered = sorted(sizes)
    for place, size in enumerate(ordered):
        share = room / (len(ordered) - place)
        if size > share:
            return share
        room -= size
    return inf


def _parts(document: Document, parts: Sequence[str]) -> Document:
    found: Document = {key: document[key] for key in ("schema",) if key in document}
    for part in parts:
        first, dot, rest = part.partition(".")
        inner = document.get(first)
        if part in document:
            found[part] = document[part]
        elif dot and isinstance(inner, dict) and rest in inner:
            found[part] = inner[rest]
        else:
            known = inner if dot and isinstance(inner, dict) else document
            names = ", ".join(list(known)[:LISTED])
            raise SpecError(f"parts: {part[:60]!r} is no key of the answer: known: {names}")
    return found


def _shortened(value: object, room: float, name: str) -> tuple[object, tuple[str, ...]]:
    """As much as has room, and what is left out; nothing where it has no entries."""
    if isinstance(value, dict) and len(value) <= ENTRIES:
        inner = _fitted(value, int(room), f"{name}.")
        return inner.document, inner.notes
    kept: Document | list[object]
    if isinstance(value, list):
        kept = value[: _fitting(value, room)]
    elif isinstance(value, dict):
        pairs = list(value.items())
        kept = dict(pairs[: _fitting([dict([pair]) for pair in pairs], room)])
    else:
        return None, ()
    return kept, (f"{name}: {len(kept)} of {len(value)} entries",)


def _fitting(entries: Sequence[object], room: float) -> int:
    used = 2  # brackets
    for number, entry in enumerate(entries):
        used += _bytes(entry) + 2
        if used > room:
            return number
    return len(entries)


def _bytes(value: object) -> int:
    """Of the JSON that is sent."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))

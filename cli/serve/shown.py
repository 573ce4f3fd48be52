"""An answer within bounds: the parts that are asked for, and what was cut."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainplan.costmodel.base import SpecError

ENTRIES = 20
"""A mapping with more keys is a list of entries by name."""
LISTED = 30
"""Names that an error lists."""

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class Shown:
    """What is given of a document, and what is said of the rest."""

    document: Document
    notes: tuple[str, ...]


def shown(document: Document, parts: Sequence[str] | None, most_bytes: int) -> Shown:
    """The parts of a document, shortened to so many bytes of JSON.

    The longest list is shortened first; keys are left out whole where that is not enough.

    Raises:
        SpecError: There is no such part.
    """
    chosen = document if parts is None else _parts(document, parts)
    notes = []
    while (size := _bytes(chosen)) > most_bytes and chosen:
        key = max(chosen, key=lambda one: _bytes(chosen[one]))
        value, excess = chosen[key], size - most_bytes
        kept = _shortened(value, _bytes(value) - excess)
        if kept:
            chosen = {**chosen, key: kept}
            number = len(value) if isinstance(value, list | Mapping) else 1
            notes.append(f"{key}: {len(kept)} of {number} entries")
        else:
            chosen = {name: one for name, one in chosen.items() if name != key}
            notes.append(f"{key}: left out, {_bytes(value):,} bytes")
    return Shown(chosen, tuple(notes))


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


def _shortened(value: object, room: int) -> Document | list[object] | None:
    """As many entries as have room, the first ones; none where it has no entries."""
    if isinstance(value, list):
        return value[: _fitting(value, room)]
    if isinstance(value, dict) and len(value) > ENTRIES:
        pairs = list(value.items())
        return dict(pairs[: _fitting([dict([pair]) for pair in pairs], room)])
    return None


def _fitting(entries: Sequence[object], room: int) -> int:
    used = 2  # brackets
    for number, entry in enumerate(entries):
        used += _bytes(entry) + 2
        if used > room:
            return number
    return len(entries)


def _bytes(value: object) -> int:
    """Of the JSON that is sent."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))

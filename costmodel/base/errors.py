"""Errors for bad input, and which known name is near to one that is none.

PlanError            what, where, what to do; shown to the user as one line, exit code 2
├── SpecError        a value in a model, cluster, training or layout description is wrong
├── UnsupportedError an architecture, feature or runtime this project does not model
└── CatalogError     a name that is in no catalog; carries the nearest names
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files

ALIKE = 0.75
"""Least share of letters in common, in order, of two names that are taken for one another.

Source: derived; two letters swapped, added or left out in a name of four are above it, and names of
other families (`minimax_m2`, `gemma2`) are below.
"""
BEGINS = 0.9
"""Likeness of a name and its beginning. Source: as `ALIKE`; names of one family are likelier."""
LEAST_BEGINNING, LEAST_NAME = 4, 6
"""Letters with which a name has to begin to be suggested for them, and letters of a name that is
suggested for what begins with it."""
LONGEST = 60
"""Characters of a name that a message repeats."""


@cache
def intended() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """By the kind of name: what other projects call it, letters and digits alone, and what it is.

    The data are `meant.toml` beside this file.
    """
    text = files("trainplan.costmodel.base").joinpath("meant.toml").read_text(encoding="utf-8")
    kinds = tomllib.loads(text).items()
    return {kind: {name: tuple(here) for name, here in names.items()} for kind, names in kinds}


def plain(name: str) -> str:
    """Letters and digits of a name, in small letters."""
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def near(kind: str, name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """The known names that someone may have meant, the likeliest first; empty where none is alike.

    A name of another project for the same thing counts before letters in common.
    """
    typed, names = name[: 2 * LONGEST].lower(), sorted(known)
    known_as = intended().get(kind, {}).get(plain(typed))
    if known_as:
        return known_as
    likeness = {one: _likeness(typed, one.lower()) for one in names}
    alike = [one for one in names if likeness[one] >= ALIKE]
    return tuple(sorted(alike, key=lambda one: -likeness[one])[:most])


def _likeness(typed: str, known: str) -> float:
    """From 0 to 1, which are the same letters."""
    letters = plain(typed), plain(known)
    share = max(_in_common(typed, known), _in_common(*letters))
    begins = (letters, LEAST_BEGINNING), (letters[::-1], LEAST_NAME)
    longer = any(len(short) >= least and long.startswith(short) for (short, long), least in begins)
    return max(share, BEGINS) if longer else share


def _in_common(typed: str, known: str) -> float:
    return SequenceMatcher(None, typed, known, autojunk=False).ratio()


def did_you_mean(kind: str, name: str, known: Iterable[str]) -> str:
    """`did you mean 'tp'?`, or nothing."""
    names = near(kind, name, known)
    return f"did you mean {' or '.join(map(repr, names))}?" if names else ""


def shortened(text: str, most: int = LONGEST) -> str:
    """A text a message may repeat: the middle of a long one is left out."""
    if len(text) <= most:
        return text
    begin = most * 2 // 3
    return f"{text[:begin]}...{text[len(text) - (most - begin) :]}"


class PlanError(Exception):
    """Bad input; the message says what is wrong, where, and what to do."""


class SpecError(PlanError):
    """A value in a model, cluster, training or layout description is wrong."""


class UnsupportedError(PlanError):
    """Something real that this project does not model or a runtime cannot express."""


class CatalogError(PlanError):
    """A name that is in no catalog."""


def unknown_name(
    kind: str, name: str, known: Iterable[str], hint: str = "", *, alike: str = ""
) -> CatalogError:
    """Error for a name that is not in a catalog, with the nearest names that are.

    `alike` is what is compared with them, where the name as typed holds more than a name.
    """
    nearest = did_you_mean(kind, alike or name, known)
    text = f"unknown {kind} {shortened(name)!r}:"
    return CatalogError(" ".join(part for part in (text, nearest, hint) if part))

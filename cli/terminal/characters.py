"""Characters that a stream does not have, in others that it has.

Every character of a page has one of ASCII in its place, so columns stay where they are.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TextIO

BLOCKS: Mapping[str, str] = MappingProxyType(dict(zip("█▉▊▋▌▍▎▏▓▒░", "###==---#:.", strict=True)))
"""Of bars and shades: a stream that lacks one of them gets none."""
SIGNS: Mapping[str, str] = MappingProxyType(
    dict(zip("·×–—−→←≤≥≈“”„‘’…•", '|x---><<>~"""\'\'.*', strict=True))  # noqa: RUF001
)
"""Each for itself: dots between parts, signs, dashes, arrows and quotation marks."""
PLAIN_LOCALES = ("C", "POSIX")
"""Names of the locale that knows ASCII alone."""


def encoding_of(stream: TextIO | None) -> str:
    """What a stream writes in: that of Python, and ASCII on a terminal whose locale has it.

    Python itself writes UTF-8 where the locale is C (PEP 538 and 540).
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if stream is None or "PYTHONIOENCODING" in os.environ or not stream.isatty():
        return encoding
    stated = os.environ.get("LC_ALL") or os.environ.get("LANG")
    return "ascii" if stated in PLAIN_LOCALES else encoding


def plain(text: str, encoding: str) -> str:
    """A page for a stream: what it lacks of `BLOCKS` and `SIGNS` is drawn with ASCII."""
    if text.isascii() or has(text, encoding):
        return text
    table = {} if has("".join(BLOCKS), encoding) else dict(BLOCKS)
    table |= {sign: ours for sign, ours in SIGNS.items() if not has(sign, encoding)}
    return text.translate({ord(sign): ours for sign, ours in table.items()})


def spelled(text: str, encoding: str) -> str:
    r"""Any other character that a stream lacks as `\u00e9`, which JSON reads back."""
    if text.isascii() or has(text, encoding):
        return text
    return "".join(c if has(c, encoding) else _code(c) for c in text)


def has(text: str, encoding: str) -> bool:
    """Can all of it be written?"""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _code(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))

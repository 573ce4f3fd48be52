"""Numbers as they are typed, `128k`, `2w`, `30GiB` or `50GB/s`: one table of suffixes, by kind."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Literal

from trainplan.costmodel.base.errors import SpecError, shortened
from trainplan.costmodel.base.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

NumberKind = Literal["count", "length", "duration", "size", "rate"]
"""What a number is of: things, tokens of a sequence, seconds, bytes, bytes per second."""


@dataclass(frozen=True, slots=True)
class Written:
    """How the numbers of a kind are written."""

    noun: str
    forms: str
    factors: Mapping[str, int]
    """What a suffix multiplies by."""


_POWERS = {unit: 10**power for unit, power in (("K", 3), ("M", 6), ("B", 9), ("G", 9), ("T", 12))}
_BYTES = [("iB", 2**10), ("B", 10**3)]
_SIZES = {f"{p}{b}": base**n for n, p in enumerate("KMGT", start=1) for b, base in _BYTES}
_DAY = SECONDS_PER_DAY
_TIMES = {"s": 1, "m": SECONDS_PER_MINUTE, "h": SECONDS_PER_HOUR, "d": _DAY, "w": 7 * _DAY}
_TIMES["y"] = 365 * _DAY
LONGEST_YEARS = 1000
"""Longer durations are a typing slip."""
_RATES = {
    f"{p}{b}/s": size
    for n, p in enumerate("MGT", start=2)
    for b, size in (("B", 10 ** (3 * n)), ("b", 10 ** (3 * n) // 8))
}
WRITTEN: Mapping[NumberKind, Written] = MappingProxyType(
    {
        "count": Written("number", "4096, 4k (4,000), 2M, 200B or 1e12", {"": 1, **_POWERS}),
        "length": Written("length", "8192, 8k (k is 1,024) or 1M", {"": 1, "K": 2**10, "M": 2**20}),
        "duration": Written("duration", "90s, 30m, 2h, 10d, 2w or 5y", _TIMES),
        "size": Written("size of memory", "30GiB, 30GB or 500MiB", _SIZES),
        "rate": Written("speed", "50GB/s, 2TB/s or 400Gb/s", _RATES),
    }
)
_NUMBER = re.compile(
    r"(?P<digits>\d{1,18}(\.\d{1,18})?(e[+-]?\d{1,2})?)(?P<suffix>[A-Za-z]*(/s)?)", re.A
)
_GROUPED = re.compile(r"^\d{1,3}([_,]\d{3})+(?![_,\d])", re.ASCII)
"""Thousands set off by commas or underscores."""


def read_number(text: str, kind: NumberKind, *, bare: bool = False, forms: str = "") -> Decimal:
    """The number that a text states, in ones, tokens, seconds, bytes or bytes a second.

    Letters alone are large or small; a unit is written as it stands. With `bare` a unit may be left
    out; `forms` are examples of an option.

    Raises:
        SpecError: It states none, the message has the forms; or a duration is too long.
    """
    written = WRITTEN[kind]
    plain = _GROUPED.sub(lambda one: re.sub("[_,]", "", one[0]), text.strip(), count=1)
    match = _NUMBER.fullmatch(plain.replace(" ", "") if kind == "size" else plain)
    suffix = match["suffix"] if match else "?"
    factor = written.factors.get(suffix.upper() if "" in written.factors else suffix)
    factor = 1 if bare and not suffix else factor
    if match is None or factor is None:
        why = "below 0" if re.match(r"-\d", plain) else f"no {written.noun}"
        raise SpecError(f"{shortened(text)!r} is {why}: write {forms or written.forms}")
    number = Decimal(match["digits"]) * factor
    if kind == "duration" and number > LONGEST_YEARS * _TIMES["y"]:
        raise SpecError(f"{shortened(text)!r} is longer than {LONGEST_YEARS:,} years: give less")
    return number

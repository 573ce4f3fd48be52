"""Numbers as short text."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from math import ceil

from trainplan.costmodel.base import GIB

NEVER = "-"
"""Where there is no number."""


def seconds(value: float) -> str:
    """Seconds with about four digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f} s"
    if abs(value) >= 100:
        return f"{value:.1f} s"
    if abs(value) >= 1:
        return f"{value:.2f} s"
    return f"{value:.3f} s" if abs(value) >= 0.1 else f"{value * 1000:.2f} ms"


def seconds_like(value: float, whole: float) -> str:
    """Seconds with as many digits as `seconds` gives the whole, so that columns align."""
    digits = len(seconds(whole).split()[0].partition(".")[2])
    if seconds(whole).endswith("ms"):
        return f"{round(value * 1000, digits) + 0.0:.{digits}f} ms"  # 0.0: no negative zero
    return f"{round(value, digits) + 0.0:,.{digits}f} s"


def gib(value_bytes: float) -> str:
    """Bytes as GiB, without the unit."""
    return f"{value_bytes / GIB:.1f}"


def percent(fraction: float, digits: int = 1, *, up: bool = False) -> str:
    """A fraction in percent; rounded `up`, what it bounds holds."""
    scale = 10 ** (digits + 2)
    shown = ceil(round(fraction * scale, 6)) / scale if up else fraction
    return f"{shown * 100:.{digits}f} %"


def small_percent(fraction: float) -> str:
    """A fraction in percent; of one that is there and that the digits do not show, a bound."""
    return "less than 0.1 %" if 0 < fraction < 0.5e-3 else percent(fraction)


def share(fraction: float) -> str:
    """A chosen fraction in percent, with a digit where it needs one: 25 %, 33.4 %."""
    return f"{round(fraction * 100, 1):g} %"


def exact_share(fraction: float) -> str:
    """A fraction in percent with all its digits, so that it can be read back."""
    return f"{(Decimal(repr(fraction)) * 100).normalize():f} %"


def parameters(count: int) -> str:
    """A number of parameters: 70.6 B."""
    return _large(count, ".1f")


def tokens(count: int) -> str:
    """A number of tokens: 15 T."""
    return _large(count, "g")


def _large(count: int, form: str) -> str:
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if count >= size:
            return f"{count / size:{form}} {unit}"
    return f"{count:,}"


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


DOT = " · "
"""Between the parts of a line."""


def like(whole: float) -> Callable[[float], str]:
    """Writes seconds with as many digits as the whole has."""
    return partial(seconds_like, whole=whole)


def signed(fraction: float) -> str:
    """Writes a fraction in percent, with its sign."""
    return f"{fraction * 100:+.1f} %"

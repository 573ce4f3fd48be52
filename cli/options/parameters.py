"""Readers of option values, beyond the types of click; an unknown one is told the nearest."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from trainplan.costmodel.base import unknown_name

_POWERS = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}
_TOKENS = re.compile(r"(?P<number>\d{1,18}(\.\d{1,18})?)(?P<power>e\+?\d{1,2})?(?P<suffix>[KMBT]?)")
MOST_TOKENS = 10**18
_HOURS = {"h": 1, "d": 24, "w": 24 * 7}
_DURATION = re.compile(r"(?P<number>\d{1,9}(\.\d{1,9})?)(?P<unit>[hdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_SHORT = re.compile(r"(?P<number>\d{1,9}(\.\d{1,9})?)(?P<unit>[smh])")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"(?P<number>\d{1,12}(\.\d{1,9})?) ?(?P<unit>[KMG]i?B)")
NO_LIMIT = "none"
WORLD = "world"
"""The mean of the world, which the cost model knows."""
MOST_KG_PER_KWH = 10
_DECIMAL = re.compile(r"\d{1,3}(\.\d{1,9})?")
MOST_BYTES = 2**50
_PERCENT = re.compile(r"(?P<number>\d{1,6}(\.\d{1,9})?) ?%")


def finite(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Callback of a number: NaN and infinity are refused."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number")
    return value


def token_count(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | None:
    """Callback of a number of tokens: `15T`, `300B`, `1e12`."""
    if value is None:
        return None
    match = _TOKENS.fullmatch(value.replace("_", "").replace(",", ""))
    if match is None:
        raise click.BadParameter(f"{value[:40]!r} is no number of tokens: write 15T, 300B or 1e12")
    number = Decimal(match["number"] + (match["power"] or ""))
    tokens = number * 10 ** _POWERS[match["suffix"]]
    if not 1 <= tokens <= MOST_TOKENS:
        raise click.BadParameter(f"{value} tokens: must be between 1 and 1e18")
    return int(tokens)


def day_count(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """Callback of a duration in days: `30d`, `36h`, `2w`."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value)
    if match is None or float(match["number"]) == 0:
        raise click.BadParameter(f"{value[:40]!r} is no duration: write 30d, 36h or 2w")
    return float(match["number"]) * _HOURS[match["unit"]] / 24


def second_count(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """Callback of a short duration in seconds: `90s`, `30m`, `2h`."""
    if value is None:
        return None
    match = _SHORT.fullmatch(value)
    if match is None or float(match["number"]) == 0:
        raise click.BadParameter(f"{value[:40]!r} is no duration: write 90s, 30m or 2h")
    return float(match["number"]) * _SECONDS[match["unit"]]


def limit_seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Callback of a time limit in seconds: a number above 0, or `none`, which is infinite."""
    try:
        seconds = math.inf if value == NO_LIMIT else float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 0 or (math.isinf(seconds) and value != NO_LIMIT):
        raise click.BadParameter(
            f"{value[:40]!r} is no time limit: write seconds above 0, such as 30, or {NO_LIMIT}"
        )
    return seconds


def byte_count(context: click.Context, parameter: click.Parameter, value: str | None) -> int:
    """Callback of a size of memory in bytes: `30GiB`, `30GB`, `500MiB`."""
    if value is None:
        return 0
    match = _SIZE.fullmatch(value)
    if match is None:
        raise click.BadParameter(
            f"{value[:40]!r} is no size of memory: write 30GiB, 30GB or 500MiB"
        )
    size = int(Decimal(match["number"]) * _UNITS[match["unit"]])
    if size > MOST_BYTES:
        raise click.BadParameter(f"{value} is more than any GPU has: write 30GiB, 30GB or 500MiB")
    return size


def carbon_intensity(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | str | None:
    """Callback of the carbon dioxide of a kWh in kg: `0.4`, or `world`."""
    if value is None or value == WORLD:
        return value
    match = _DECIMAL.fullmatch(value)
    if match is None or float(value) > MOST_KG_PER_KWH:
        raise click.BadParameter(
            f"{value[:40]!r} is no carbon dioxide of a kWh in kg: write a number such as 0.4 "
            f"({MOST_KG_PER_KWH} at most), or {WORLD}"
        )
    return float(value)


def percentage(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """Callback of a share in percent, as a fraction: `2%`."""
    if value is None:
        return None
    match = _PERCENT.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value[:40]!r} is no percentage: write 2%")
    return float(match["number"]) / 100


if TYPE_CHECKING:
    Choice = click.Choice[str]
else:
    Choice = click.Choice  # click 8.1 has no type parameter


class OneOf(Choice):
    """One of some names of a kind, which shells complete."""

    def __init__(self, kind: str, names: Sequence[str], further: str = "") -> None:
        """`further` ends the message: where more names come from."""
        super().__init__(names)
        self.kind, self.further = kind, further

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The value itself, which is one of the names."""
        if value in self.choices:
            return str(value)
        hint = f"known: {', '.join(self.choices)}{self.further}"
        message = str(unknown_name(self.kind, str(value), self.choices, hint))
        raise click.BadParameter(message, ctx, param)

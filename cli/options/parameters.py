"""Readers of option values, beyond the types of click; for an unknown one they name the nearest."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import Decorator
from trainplan.cli.options.names import PRECISIONS, RUNTIMES
from trainplan.costmodel.base import (
    GB,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    NumberKind,
    SpecError,
    read_number,
    unknown_name,
)

MOST_TOKENS = 10**18
NO_LIMIT = "none"
WORLD = "world"
"""The mean of the world, which the cost model knows."""
PUBLISHED = "published"
"""How often nodes of such GPUs failed in a published run, which the catalog knows."""
MOST_KG_PER_KWH = 10
_DECIMAL = re.compile(r"\d{1,3}(\.\d{1,9})?", re.ASCII)
_STEPS = re.compile(r"[1-9]\d{0,5}", re.ASCII)
MOST_BYTES = 2**50
_PERCENT = re.compile(r"(?P<number>\d{1,6}(\.\d{1,9})?) ?%", re.ASCII)


if TYPE_CHECKING:
    Choice = click.Choice[str]
    NumberType = click.ParamType[int]
else:
    Choice = click.Choice  # older clicks have no type parameter
    NumberType = click.ParamType


def _number(text: str, kind: NumberKind, *, bare: bool = False, forms: str = "") -> Decimal:
    """As `read_number`, for click."""
    try:
        return read_number(text, kind, bare=bare, forms=forms)
    except SpecError as error:
        raise click.BadParameter(str(error)) from None


def _plain(
    value: object, parameter: click.Parameter | None, context: click.Context | None
) -> object:
    """Refuse what Python takes for a number and is never typed: `1_0`, digits of other scripts."""
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        raise click.BadParameter(f"{value[:40]!r} is no number: write 0 to 9", context, parameter)
    return value


class IntRange(click.IntRange):
    """A whole number within bounds, as it is usually written."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """On a help page."""
        return "N"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number, which is in the range."""
        number_or_text: Any = _plain(value, param, ctx)
        return int(super().convert(number_or_text, param, ctx))


class FloatRange(click.FloatRange):
    """A finite number within bounds, as it is usually written."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """On a help page."""
        return "X"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, which is in the range."""
        number_or_text: Any = _plain(value, param, ctx)
        number = float(super().convert(number_or_text, param, ctx))
        if not math.isfinite(number):
            raise click.BadParameter(f"{number} is not a finite number", ctx, param)
        return number


class Whole(NumberType):
    """A whole number from 1, with or without a suffix: `128k`; its help page needs no range."""

    name = "n"

    def __init__(self, most: int, kind: NumberKind = "count") -> None:
        """`most` is the largest."""
        self.range = click.IntRange(1, most)
        self.kind: NumberKind = kind

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number, which is in the range."""
        number: Any = _number(value, self.kind) if isinstance(value, str) else value
        if number % 1:
            raise click.BadParameter(f"{value} is no whole number", ctx, param)
        return int(self.range.convert(number, param, ctx))


class Seconds(click.FloatRange):
    """A duration in seconds, with or without its unit: `90`, `90s`, `30m`."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """On a help page."""
        return "SECONDS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds, which are in the range."""
        number: Any = _number(value, "duration", bare=True) if isinstance(value, str) else value
        return float(super().convert(number, param, ctx))


def token_count(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | None:
    """Callback of a number of tokens: `15T`, `300B`, `1e12`."""
    if value is None:
        return None
    tokens = _number(value, "count", forms="15T, 300B or 1e12")
    if not 1 <= tokens <= MOST_TOKENS:
        raise click.BadParameter(f"{value} tokens: must be between 1 and 1e18")
    if tokens % 1:
        raise click.BadParameter(f"{value[:40]!r} is no whole number of tokens: write 15T or 1e12")
    return int(tokens)


def _duration(
    forms: str, least_s: float, unit_s: float
) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """Callback of a duration of `least_s` seconds or more, in units of `unit_s` seconds."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        seconds = float(_number(value, "duration", forms=forms))
        if seconds < least_s or not seconds:
            raise click.BadParameter(f"{value[:40]!r} is no duration: write {forms}")
        return seconds / unit_s

    return read


_node_days = _duration(f"5y, 400d, 2000h or {PUBLISHED}", SECONDS_PER_HOUR, SECONDS_PER_DAY)


def node_day_count(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | str | None:
    """Callback of the mean time between failures of a node, in days: `5y`, `published`."""
    return value if value == PUBLISHED else _node_days(context, parameter, value)


minute_count = _duration("10m, 90s or 1h", 0.0, 60)
"""Callback of a duration in minutes: `10m`."""
hour_count = _duration("24h, 90m or 3d", 0.0, SECONDS_PER_HOUR)
"""Callback of a duration in hours: `24h`."""
day_count = _duration("30d, 36h or 2w", SECONDS_PER_HOUR, SECONDS_PER_DAY)
"""Callback of a duration in days, from an hour: `30d`, `36h`, `2w`; `3m` may be months."""
second_count = _duration("90s, 30m or 2h", 0.0, 1.0)
"""Callback of a duration in seconds: `90s`, `30m`, `2h`."""


def limit_seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Callback of a time limit in seconds: above 0, or `none`, which is infinite."""
    forms = f"seconds above 0, such as 30, or 5m, or {NO_LIMIT}"
    if value == NO_LIMIT:
        return math.inf
    seconds = float(_number(value, "duration", bare=True, forms=forms))
    if not seconds:
        raise click.BadParameter(f"{value[:40]!r} is no time limit: write {forms}")
    return seconds


def byte_count(context: click.Context, parameter: click.Parameter, value: str | None) -> int:
    """Callback of a size of memory in bytes: `30GiB`, `30GB`, `500MiB`."""
    if value is None:
        return 0
    size = int(_number(value, "size"))
    if size > MOST_BYTES:
        raise click.BadParameter(f"{value} is more than any GPU has: write 30GiB, 30GB or 500MiB")
    return size


def gb_per_s(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Callback of a speed in GB/s: `50GB/s`, `400Gb/s`."""
    if value is None:
        return None
    rate = float(_number(value, "rate"))
    if not rate:
        raise click.BadParameter(f"{value[:40]!r} is no speed: write 50GB/s")
    return rate / GB


def step_count(
    *words: str,
) -> Callable[[click.Context, click.Parameter, str | None], int | str | None]:
    """Callback of a number of steps, or of one of some words."""

    def read(
        context: click.Context, parameter: click.Parameter, value: str | None
    ) -> int | str | None:
        if value is None or value in words:
            return value
        if not _STEPS.fullmatch(value):
            known = f"1 to 999999, {' or '.join(words)}"
            raise click.BadParameter(f"{value[:40]!r} is no number of steps: write {known}")
        return int(value)

    return read


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
    """Callback of a share in percent, as a fraction: `2%`, or `0`."""
    if value is None:
        return None
    match = _PERCENT.fullmatch("0%" if value == "0" else value)
    if match is None:
        raise click.BadParameter(f"{value[:40]!r} is no percentage: write 2%")
    return float(match["number"]) / 100


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


def listing(names: Sequence[str]) -> type[click.Option]:
    """The class of an option whose many names are below all options of a help page."""

    class Listing(click.Option):
        """An option with the names that it takes."""

        listed = names

    return Listing


READ_AS: Mapping[str, Mapping[str, Any]] = {
    "--model": {"metavar": "MODEL", "shell_complete": completions.MODEL},
    "--cluster": {"metavar": "CLUSTER", "shell_complete": completions.cluster},
    "--precision": {"type": OneOf("precision", PRECISIONS)},
    "--runtime": {"type": OneOf("runtime", RUNTIMES), "metavar": "RUNTIME"},
}


def job_option(
    name: str, text: str, *, required: bool = False, listed: Sequence[str] = ()
) -> Decorator:
    """An option of a job, read the same everywhere, with a help of its own."""
    more: Mapping[str, Any] = {"cls": listing(listed)} if listed else {}
    return click.option(name, help=text, required=required, **READ_AS[name], **more)

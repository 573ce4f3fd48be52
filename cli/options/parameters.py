"""Readers of option values, beyond the types of click; an unknown one is told the nearest."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import Decorator
from trainplan.cli.options.names import PRECISIONS, RUNTIMES
from trainplan.costmodel.base import unknown_name

_POWERS = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}
_TOKENS = re.compile(r"(?P<number>\d{1,18}(\.\d{1,18})?)(?P<power>e\+?\d{1,2})?(?P<suffix>[KMBT]?)")
MOST_TOKENS = 10**18
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_DURATION = re.compile(r"(?P<number>\d{1,9}(\.\d{1,9})?)(?P<unit>[smhdw])")
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


def _duration(
    units: Mapping[str, int], example: str, over: int = 1
) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """Callback of a duration: what `units` say of a unit, over `over`."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        match = _DURATION.fullmatch(value)
        if match is None or float(match["number"]) == 0 or match["unit"] not in units:
            raise click.BadParameter(f"{value[:40]!r} is no duration: write {example}")
        return float(match["number"]) * units[match["unit"]] / over

    return read


day_count = _duration({"h": 1, "d": 24, "w": 24 * 7}, "30d, 36h or 2w", over=24)
"""Callback of a duration in days: `30d`, `36h`, `2w`."""
second_count = _duration({"s": 1, "m": 60, "h": 3600}, "90s, 30m or 2h")
"""Callback of a short duration in seconds: `90s`, `30m`, `2h`."""


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


READ_AS: Mapping[str, Mapping[str, Any]] = {
    "--model": {"metavar": "MODEL", "shell_complete": completions.MODEL},
    "--cluster": {"metavar": "CLUSTER", "shell_complete": completions.cluster},
    "--precision": {"type": OneOf("precision", PRECISIONS)},
    "--runtime": {"type": OneOf("runtime", RUNTIMES), "metavar": "RUNTIME"},
}


def job_option(
    name: str, text: str, *, required: bool = False, show_default: str | None = None
) -> Decorator:
    """An option of a job, read alike everywhere, with a help of its own."""
    return click.option(
        name, help=text, required=required, show_default=show_default, **READ_AS[name]
    )

"""Kinds of choices: the number that means one in a column, and the text it is read from.

`read` takes the text of `--layout` and gives what `Layout` takes; `chosen` takes that of `--fix`
and `--exclude` and gives the code that a column is compared with.
"""
# ruff: noqa: D102 - `Codec` says what the methods of every kind do

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from pydantic import ValidationError

from trainplan.costmodel.base import SpecError, did_you_mean
from trainplan.costmodel.layout.layout import ShardSpec, StageSpec
from trainplan.costmodel.spec import first_complaint

LONGEST_NUMBER = 9
"""Digits; no field of a layout comes near it."""
MOST_STAGES = 1 << 16
BOOLEANS = MappingProxyType({"true": True, "1": True, "false": False, "0": False})


class Codec(ABC):
    """One kind of choice."""

    dtype: ClassVar[type] = np.int64
    """Of its column."""
    free: ClassVar[float] = math.nan
    """Code with which `--fix` leaves the choice to the search."""

    def code(self, value: object) -> object:
        """What a column holds for a value of a layout."""
        return value

    def value(self, code: object) -> object:
        """The value of a layout that a column holds."""
        return code

    def listed(self, value: object) -> int | float | str:
        """The value as documents list it."""
        code = self.code(value)
        assert isinstance(code, int | float)
        return code

    @abstractmethod
    def read(self, name: str, text: str) -> object:
        """Read `--layout`.

        Raises:
            SpecError: The text is of another kind.
        """

    @abstractmethod
    def chosen(self, name: str, text: str) -> float:
        """Code of what `--fix` holds.

        Raises:
            SpecError: The text is of another kind.
        """

    def text(self, value: object) -> str:
        """The value as `--layout` takes it."""
        listed = self.listed(value)
        return f"{listed:g}" if isinstance(listed, float) else f"{listed}"


@dataclass(frozen=True, slots=True)
class Count(Codec):
    """A whole number."""

    free: ClassVar[float] = -1
    least: int = 1
    absent: bool = False
    """May be null, which is 0."""
    by_request: bool = False
    """The search leaves some out unless `--fix` names one, or is `free`."""

    def code(self, value: object) -> int:
        return value if isinstance(value, int) else 0

    def value(self, code: object) -> int | None:
        assert isinstance(code, int)
        return None if self.absent and not code else code

    def read(self, name: str, text: str) -> int:
        return whole(name, text) if self.least == 0 else at_least_one(name, text)

    def chosen(self, name: str, text: str) -> float:
        if self.by_request and text == "free":
            return self.free
        number = finite(text)
        if number < 0 or not number.is_integer():
            raise SpecError(f"{name} is a whole number")
        return number


@dataclass(frozen=True, slots=True)
class Names(Codec):
    """One of some names, coded by its place among them; null is written as none."""

    names: Sequence[str | None]

    def code(self, value: object) -> int:
        return self._written.index(self.listed(value))

    def value(self, code: object) -> str | None:
        assert isinstance(code, int)
        return self.names[code]

    def listed(self, value: object) -> str:
        return str(value or "none")

    def read(self, name: str, text: str) -> str | None:
        return None if text == "none" and None in self.names else text

    def chosen(self, name: str, text: str) -> float:
        return one_of(name, text, self._written)

    @property
    def _written(self) -> list[str]:
        return [name or "none" for name in self.names]


@dataclass(frozen=True, slots=True)
class Flag(Codec):
    """On or off."""

    def code(self, value: object) -> int:
        return int(bool(value))

    def value(self, code: object) -> bool:
        return bool(code)

    def text(self, value: object) -> str:
        return "true" if value else "false"

    def read(self, name: str, text: str) -> bool:
        if text.lower() not in BOOLEANS:
            raise SpecError(f"layout field {name}={text}: expected true or false")
        return BOOLEANS[text.lower()]

    def chosen(self, name: str, text: str) -> float:
        return one_of(name, text, ("false", "true"))


@dataclass(frozen=True, slots=True)
class Modules(Codec):
    """A set of parts of a layer, coded by bits."""

    free: ClassVar[float] = -1
    names: Sequence[str]
    by_request: bool = False
    """The search tries none of them unless `--fix` names some, or is `free`."""

    def code(self, value: object) -> int:
        return bits(value if isinstance(value, tuple) else (), self.names)

    def value(self, code: object) -> tuple[str, ...]:
        assert isinstance(code, int)
        return tuple(m for i, m in enumerate(self.names) if code >> i & 1)

    def listed(self, value: object) -> str:
        return "+".join(value if isinstance(value, tuple) else ()) or "none"

    def read(self, name: str, text: str) -> list[str]:
        return [word for word in text.split("+") if word]

    def chosen(self, name: str, text: str) -> float:
        if self.by_request and text == "free":
            return self.free
        named = text.split("+") if text != "none" else []
        if unknown := [module for module in named if module not in self.names]:
            known = ", ".join(self.names)
            raise SpecError(f"no module {unknown[0]!r}; join some of {known} by +")
        return bits(named, self.names)


@dataclass(frozen=True, slots=True)
class Share(Codec):
    """A fraction from 0 to 1."""

    dtype: ClassVar[type] = np.float64
    of: str
    """The whole, as a noun."""

    def text(self, value: object) -> str:
        assert isinstance(value, int | float)
        return f"{value:g}" if float(f"{value:g}") == value else f"{value!r}"

    def read(self, name: str, text: str) -> float:
        try:
            return float(text)
        except ValueError as error:
            raise SpecError(
                f"layout field {name}={text}: expected the share of {self.of}, 0 to 1"
            ) from error

    def chosen(self, name: str, text: str) -> float:
        number = finite(text)
        if not 0 <= number <= 1:
            raise SpecError(f"{name} is a fraction from 0 to 1")
        return number


@dataclass(frozen=True, slots=True)
class Stages(Codec):
    """Virtual stages one by one, or null: a column holds them as they are.

    `--fix` and `--exclude` take whether they are even, which is the code 1.
    """

    dtype: ClassVar[type] = np.object_
    free: ClassVar[float] = 0

    def listed(self, value: object) -> str:
        return stages_text(value) if isinstance(value, tuple) else "even"

    def read(self, name: str, text: str) -> list[dict[str, int]] | None:
        """`even`, or layers of every virtual stage: `13*8+12` is eight stages of 13 and one of 12.

        `13/4` is a stage of 13 layers whose first 4 are recomputed in full; `13@1` lives in node
        group 1, counted from 0, `13/4@1` is both.
        """
        if text == "even":
            return None
        if text in ("uneven", "free"):
            raise SpecError(
                f"layout field {name}={text}: give the layers of every virtual stage, such as "
                f"{name}=13*8+12, or even; `--fix {name}=uneven` of a search finds them"
            )
        stages: list[dict[str, int]] = []
        for part in text.split("+"):
            stage, star, times = part.partition("*")
            stage, at, group = stage.partition("@")
            layers, slash, again = stage.partition("/")
            entry = {"layers": whole(name, layers)}
            if slash:
                entry["recompute_num_layers"] = whole(name, again)
            if at:
                entry["group"] = whole(name, group)
            repeats = at_least_one(name, times) if star else 1
            if repeats + len(stages) > MOST_STAGES:
                raise SpecError(f"layout field {name}={text[:40]}: at most {MOST_STAGES} stages")
            stages += [entry] * repeats
        return stages

    def chosen(self, name: str, text: str) -> float:
        if text.lower() not in ("free", "even"):
            raise SpecError(f"{name} is one of free, even, uneven")
        return float(text.lower() == "even")


SHARD_BITS = 21
"""Of each number of ranks in the code of a `ShardSpec`."""
STATES = tuple(ShardSpec.model_fields)


@dataclass(frozen=True, slots=True)
class Shards(Codec):
    """Ranks that share each state, from the lowest bits on; null is 0."""

    def code(self, value: object) -> int:
        ranks = [number for _, number in value] if isinstance(value, ShardSpec) else []
        return sum(number << SHARD_BITS * place for place, number in enumerate(ranks))

    def value(self, code: object) -> ShardSpec | None:
        assert isinstance(code, int)
        least = (1 << SHARD_BITS) - 1
        ranks = (code >> SHARD_BITS * place & least for place in range(len(STATES)))
        return ShardSpec(**dict(zip(STATES, ranks, strict=True))) if code else None

    def listed(self, value: object) -> str:
        return value.text if isinstance(value, ShardSpec) else "none"

    def read(self, name: str, text: str) -> ShardSpec | None:
        """`weights:8+gradients:8+optimizer:128`, or with commas; one left out is as that before."""
        if text == "none":
            return None
        ranks: dict[str, int] = {}
        for part in text.replace(",", "+").split("+"):
            state, colon, number = part.strip().partition(":")
            if state not in STATES or not colon or state in ranks:
                raise SpecError(
                    f"layout field {name}={text[:60]}: expected ranks that share each state, such "
                    f"as {name}=weights:8+gradients:8+optimizer:128"
                )
            ranks[state] = at_least_one(f"{name} {state}", number)
        for before, state in pairwise(STATES):
            ranks.setdefault(state, ranks.get(before, 1))
        try:
            return ShardSpec(**ranks)
        except ValidationError as error:
            raise SpecError(f"layout field {name}: {first_complaint(error).text}") from error

    def chosen(self, name: str, text: str) -> float:
        return self.code(self.read(name, text))


def bits(modules: Iterable[str], names: Sequence[str]) -> int:
    """Bit set of modules."""
    return sum(1 << names.index(module) for module in set(modules))


def stages_text(stages: Sequence[StageSpec]) -> str:
    """Layers of every stage, as `--layout stages=` takes them."""
    runs = [(stage, len(list(run))) for stage, run in groupby(stages)]
    grouped = any(stage.group for stage in stages)
    texts = ((_stage_text(stage, grouped=grouped), count) for stage, count in runs)
    return "+".join(text + (f"*{count}" if count > 1 else "") for text, count in texts)


def _stage_text(stage: StageSpec, *, grouped: bool) -> str:
    again = stage.recompute_num_layers
    text = f"{stage.layers}" if again is None else f"{stage.layers}/{again}"
    return f"{text}@{stage.group}" if grouped else text


def whole(name: str, text: str) -> int:
    """A whole number of `--layout`."""
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdigit()):
        raise SpecError(f"layout field {name}={text[:40]}: expected a whole number")
    if len(digits) > LONGEST_NUMBER:
        raise SpecError(
            f"layout field {name}={text[:40]}: expected a whole number of at most "
            f"{LONGEST_NUMBER} digits"
        )
    return int(digits or "0")


def at_least_one(name: str, text: str) -> int:
    """As `whole`, and not 0."""
    number = whole(name, text)
    if number == 0:
        raise SpecError(f"layout field {name}=0: must be at least 1")
    return number


def one_of(name: str, text: str, names: Collection[str]) -> int:
    """Place of a name of `--fix`, whatever its case."""
    if text.lower() not in names:
        intended = did_you_mean(name, text, names)
        raise SpecError(
            f"{name} is one of {', '.join(names)}" + (f": {intended}" if intended else "")
        )
    return list(names).index(text.lower())


def finite(text: str) -> float:
    """A finite number; -1 for anything else, which no field accepts."""
    try:
        number = float(text)
    except ValueError:
        return -1.0
    return number if math.isfinite(number) else -1.0

"""Values of files that know where they are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.base.json_text import read_json

SHOWN = 40
"""Characters of a wrong value that a message shows."""


def positive(where: str, value: object, scale: float = 1.0) -> float:
    """A number above zero, times `scale`.

    Raises:
        SpecError: It is no number, not finite, zero or below.
    """
    try:
        number = float(value) * scale if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number <= 0:
        text = repr(value)[:SHOWN]
        raise SpecError(f"{where}: expected a number above 0, got {text}: correct it or remove it")
    return number


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a JSON file."""

    file: str
    path: str
    """Keys from the top, with dots."""
    value: object

    @property
    def where(self) -> str:
        """File and keys, for messages."""
        return f"{self.file}: {self.path}" if self.path else self.file

    def wrong(self, expected: str) -> SpecError:
        """The error of a value that is something else."""
        text = repr(self.value)[:SHOWN]
        return SpecError(f"{self.where}: expected {expected}, got {text}: is this the right file?")

    def items(self) -> Iterator[tuple[str, Entry]]:
        """Keys and values of an object.

        Raises:
            SpecError: It is none.
        """
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        for key, value in self.value.items():
            yield str(key), self._below(str(key), value)

    def get(self, key: str) -> Entry | None:
        """Value of a key, null where it is missing or null.

        Raises:
            SpecError: This is no object.
        """
        return next((v for k, v in self.items() if k == key and v.value is not None), None)

    def __getitem__(self, key: str) -> Entry:
        found = self.get(key)
        if found is None:
            raise SpecError(f"{self.where}: {key!r} is missing: is this the right file?")
        return found

    def elements(self) -> tuple[Entry, ...]:
        """Values of a list.

        Raises:
            SpecError: It is none, or empty.
        """
        if not isinstance(self.value, list) or not self.value:
            raise self.wrong("a list with values")
        return tuple(self._below(str(i), value) for i, value in enumerate(self.value))

    def positive(self, scale: float = 1.0) -> float:
        """A number above zero, times `scale`."""
        return positive(self.where, self.value, scale)

    def count(self) -> int:
        """A whole number above zero.

        Raises:
            SpecError: It is none.
        """
        number = self.positive()
        if not number.is_integer():
            raise self.wrong("a whole number")
        return int(number)

    def number(self) -> float:
        """A finite number.

        Raises:
            SpecError: It is none.
        """
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong("a number")
        try:
            finite = math.isfinite(value)
        except OverflowError:
            finite = False
        if not finite:
            raise self.wrong("a finite number")
        return float(value)

    def _below(self, key: str, value: object) -> Entry:
        return Entry(self.file, f"{self.path}.{key}" if self.path else key, value)


def json_entry(file: str, text: str) -> Entry:
    """The top of a JSON file.

    Raises:
        SpecError: It is not JSON.
    """
    try:
        return Entry(file, "", read_json(text))
    except ValueError as error:
        what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise SpecError(f"{file} is not JSON ({what[: 3 * SHOWN]}): give the file itself") from None

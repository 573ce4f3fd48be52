"""A Hugging Face `config.json`, read one field at a time and refused with the field's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec import first_complaint, shown

LARGEST_NUMBER = 10**12
"""No dimension, count or constant of a published model comes near it; larger is a typing slip."""


@dataclass(frozen=True, slots=True)
class HfConfig:
    """The values of one `config.json`, with the defaults of its configuration class.

    A field that is in neither is refused. An explicit null counts as a value: only the
    `optional_*` readers and `count` accept it.
    """

    name: str
    model_type: str
    values: Mapping[str, object]
    defaults: Mapping[str, object] = field(default_factory=dict)
    path: str = ""
    """Where this section stands in the file, with a closing dot; empty at the top."""
    seen: dict[str, object] = field(default_factory=dict)
    """Every field that was read so far, with its path, and its value in the file."""
    assumed: dict[str, object] = field(default_factory=dict)
    """Every field that was asked for and is not in the file, with the default it got."""

    def with_defaults(self, defaults: Mapping[str, object]) -> HfConfig:
        """The same file, with further defaults; those already there win."""
        return replace(self, defaults={**defaults, **self.defaults})

    def has(self, name: str) -> bool:
        """Does the file itself give this field a value?"""
        return self.values.get(name) is not None

    def ignore(self, *names: str) -> None:
        """These fields are understood: they change no size and no product."""
        for name in names:
            if name in self.values:
                self.seen[self.path + name] = self.values[name]

    def integer(self, name: str, *aliases: str) -> int:
        """A positive integer."""
        return self._whole(self._present(name, *aliases), name, least=1, wanted="positive integer")

    def optional_integer(self, name: str, *aliases: str) -> int | None:
        """A positive integer, or null."""
        value = self._lookup(name, *aliases)
        return None if value is None else self.integer(name, *aliases)

    def count(self, name: str, *aliases: str) -> int:
        """An integer of at least zero; null counts as zero."""
        value = self._lookup(name, *aliases)
        wanted = "non-negative integer"
        return 0 if value is None else self._whole(value, name, least=0, wanted=wanted)

    def optional_count(self, name: str) -> int:
        """An integer of at least zero; 0 where neither the file nor its class says."""
        return self.count(name) if name in self.values or name in self.defaults else 0

    def number(self, name: str, *aliases: str) -> float:
        """A positive finite number."""
        value = self._present(name, *aliases)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "positive number")
        if not 0 < value <= LARGEST_NUMBER:  # NaN compares false
            raise self.wrong(name, value, f"positive number of at most {LARGEST_NUMBER:.0e}")
        return float(value)

    def optional_number(self, name: str, *aliases: str) -> float | None:
        """A positive finite number, or null."""
        value = self._lookup(name, *aliases)
        return None if value is None else self.number(name, *aliases)

    def boolean(self, name: str, *aliases: str) -> bool:
        """True or false; 0 and 1 are refused."""
        value = self._present(name, *aliases)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "boolean (true or false)")
        return value

    def optional_boolean(self, name: str, *aliases: str) -> bool | None:
        """True or false, or null."""
        value = self._lookup(name, *aliases)
        return None if value is None else self.boolean(name, *aliases)

    def text(self, name: str, *aliases: str) -> str:
        """A string."""
        return self._text(self._present(name, *aliases), name, wanted="string")

    def optional_text(self, name: str) -> str | None:
        """A string, or null."""
        return None if self._lookup(name) is None else self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; null counts as an empty one."""
        return tuple(self._text(item, name, wanted="list of strings") for item in self._items(name))

    def indices(self, name: str) -> tuple[int, ...]:
        """A list of integers of at least zero; null counts as an empty one."""
        return tuple(
            self._whole(item, name, least=0, wanted="list of non-negative integers")
            for item in self._items(name)
        )

    def optional_section(self, name: str) -> HfConfig | None:
        """A nested object, or null."""
        value = self._lookup(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "object")
        return replace(self, values=value, defaults={}, path=f"{self.path}{name}.")

    def section(self, name: str) -> HfConfig:
        """A nested object."""
        section = self.optional_section(name)
        if section is None:
            raise self.lacks(name)
        return section

    def lacks(self, name: str) -> SpecError:
        """The error for a field that must be there."""
        return SpecError(f"{self.where} lacks '{self.path}{name}': add it")

    def wrong(self, name: str, value: object, wanted: str) -> SpecError:
        """The error for a field whose value cannot be right."""
        article = "an" if wanted[0] in "aeio" else "a"
        return SpecError(
            f"{self.where}: '{self.path}{name}' must be {article} {wanted}, got {shown(value)}"
        )

    def refused(self, error: ValidationError) -> SpecError:
        """The first complaint of a spec, as an error that names the file, field and reason."""
        return SpecError(f"{self.where}: {first_complaint(error).text}")

    @property
    def where(self) -> str:
        """How messages call this file."""
        return f"config.json of model_type '{self.model_type}'"

    def _lookup(self, name: str, *aliases: str) -> object:
        for key in (name, *aliases):
            if key in self.values:
                self.seen[self.path + key] = self.values[key]
                return self.values[key]
        if name not in self.defaults:
            raise self.lacks(name)
        self.assumed[self.path + name] = self.defaults[name]
        return self.defaults[name]

    def _present(self, name: str, *aliases: str) -> object:
        value = self._lookup(name, *aliases)
        if value is None:
            raise self.lacks(name)
        return value

    def _whole(self, value: object, name: str, *, least: int, wanted: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(name, value, wanted)
        if value > LARGEST_NUMBER:
            raise self.wrong(name, value, f"{wanted} of at most {LARGEST_NUMBER:.0e}")
        return value

    def _items(self, name: str) -> tuple[object, ...]:
        value = self._lookup(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self.wrong(name, value, "list")
        return tuple(value)

    def _text(self, value: object, name: str, *, wanted: str) -> str:
        if not isinstance(value, str):
            raise self.wrong(name, value, wanted)
        return value

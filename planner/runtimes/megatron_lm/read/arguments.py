"""Values of options by the runtime's own names, given or default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainplan.planner.shell import Place


def shown(text: str, most: int = 60) -> str:
    """Someone's words in a sentence of ours: the first of them, and nothing that is not printed."""
    return text[:most] if text.isprintable() else repr(text[:most])


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the runtime's parser."""

    flag: str
    dest: str
    """Its name in the code of the runtime; several options may share one."""
    action: Literal["store", "store_true", "store_false", "boolean"]
    nargs: int | str | None
    """Null: one value."""
    type: str
    choices: tuple[str, ...] | None
    default: object


@dataclass(frozen=True, slots=True)
class Given:
    """What a launch sets."""

    value: object
    flag: str
    written: str
    place: Place
    unresolved: tuple[str, ...] = ()
    """What only a run would tell; the value is the default there."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """All options with the values of one launch."""

    options: Mapping[str, Option]
    """By their names in the code."""
    given: Mapping[str, Given]
    own: Mapping[str, Given] = field(default_factory=dict)
    """Options of forks that the reader takes by itself."""

    def __contains__(self, dest: str) -> bool:
        """Is it set by the launch?"""
        return dest in self.given

    def value(self, dest: str) -> object:
        """Of any type."""
        found = self.given.get(dest)
        return self.options[dest].default if found is None else found.value

    def on(self, dest: str) -> bool:
        """Of a switch."""
        return self.value(dest) is True

    def whole(self, dest: str) -> int | None:
        """A whole number; null where there is none."""
        value = self.value(dest)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def count(self, dest: str, otherwise: int = 0) -> int:
        """As `whole`, where another number stands for none."""
        value = self.whole(dest)
        return otherwise if value is None else value

    def number(self, dest: str) -> float | None:
        """A number; null where there is none."""
        value = self.value(dest)
        return float(value) if isinstance(value, (int, float)) else None

    def text(self, dest: str) -> str:
        """A word; empty where there is none."""
        value = self.value(dest)
        return value if isinstance(value, str) else ""

    def texts(self, dest: str) -> tuple[str, ...]:
        """Words."""
        value = self.value(dest)
        return tuple(map(str, value)) if isinstance(value, tuple) else ()

    def integers(self, dest: str) -> tuple[int, ...]:
        """Whole numbers."""
        value = self.value(dest)
        return tuple(i for i in value if isinstance(i, int)) if isinstance(value, tuple) else ()

    def flag(self, dest: str) -> str:
        """The option, as it is written or as it would be."""
        found = self.given.get(dest)
        return self.options[dest].flag if found is None else found.flag

    def place(self, dest: str) -> Place | None:
        """Where it stands; null: nowhere."""
        found = self.given.get(dest)
        return None if found is None else found.place

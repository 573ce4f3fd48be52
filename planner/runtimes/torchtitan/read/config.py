"""Keys of a config with their values, where each stands, and what is wrong with them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from trainplan.planner.runtimes.keys import Entry, Keys, Name, Option
from trainplan.planner.runtimes.python_source import Made, Unread
from trainplan.planner.runtimes.torchtitan.keys import CHECKPOINT, SECTIONS
from trainplan.planner.shell import Place

T = TypeVar("T")


@dataclass(slots=True)
class Config(Keys):
    """What a launch sets, as keys of the current release."""

    def of(self, option: Option[T], default: T | None = None) -> T:
        """The value of a key, or its default; one that only a run gives is a problem."""
        entry = self.entries.get(option.name)
        if entry is not None and isinstance(entry.value, Unread | Made):
            says = f"{option} is {shown(entry.value)!r}, known to a run alone: set it by hand"
            self.problem("unread_value", "unread", says, option)
            return option.default
        return Keys.of(self, option, default)

    def degree(self, option: Option[int]) -> int:
        """The value of a key that is 1 or more; -1 where its default is."""
        value = self.of(option)
        if value >= 1 or value == option.default:
            return value
        self.problem("not_positive", "illegal", f"{option} = {value} must be 1 or more", option)
        return 1

    def checkpointing(self) -> object:
        """The policy of activation checkpointing, null without."""
        entry = self.entries.get(CHECKPOINT)
        return entry.value if entry else Made("SelectiveAC.Config", 0)

    def note(self, name: str, value: object, *keys: Name) -> None:
        """A field of ours, from the first of the keys that is set, or from their defaults."""
        if keys and (self.has(keys[0]) or any(map(self.has, keys))):
            return self.notes.note(name, self.entry(value, *keys))
        defaults = [key for key in keys if isinstance(key, Option) or key == CHECKPOINT]
        entry = Entry(value, "default", str(defaults[0])) if defaults else Entry(value, "derived")
        return self.notes.note(name, entry)


def flattened(made: Made, file: str) -> Iterator[tuple[str, Entry]]:
    """Keys of a `Trainer.Config` that is made: those of its sections one by one."""
    for name, value in made.named.items():
        line = made.lines.get(name, made.line)
        if isinstance(value, Made) and value.name.endswith(SECTIONS.get(name, "?")):
            for key, one in value.named.items():
                where = Place(file, value.lines.get(key, value.line) or None)
                yield f"{name}.{key}", Entry(one, "stated", f"{name}.{key} = {shown(one)}", where)
        else:
            written = f"{name} = {shown(value)}"
            yield name, Entry(value, "stated", written, Place(file, line or None))


def shown(value: object) -> str:
    """A value in a sentence."""
    if isinstance(value, Unread):
        return value.text
    if isinstance(value, Made):
        return f"{value.name}(...)"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."

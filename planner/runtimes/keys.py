"""Keys and options of a runtime: one table, from which launches are written and by which read.

A runtime has a module `keys` of them. What writes its launches gives each a value, what reads them
takes the value of each, so that names, defaults and limits stand once.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import yaml

from trainplan.planner.runtimes.ranks import LARGEST_WORLD
from trainplan.planner.runtimes.reading import NOT_STATED, Field, Origin
from trainplan.planner.shell import Place, Problem, Verdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Option(Generic[T]):
    """One key of a configuration, or one option of a command line."""

    name: str
    """With its sections: `zero_optimization.stage`."""
    default: T
    """What the runtime takes where nothing is written; of a number that it must be given, 0."""
    least: int = 1
    """Of numbers."""
    most: int = LARGEST_WORLD

    def __str__(self) -> str:
        """As the runtime spells it."""
        return self.name


Name = str | Option[Any]
Written = dict[Name, object]
"""Values by key; of null, none is written."""


class Entry(NamedTuple):
    """A value with where it comes from."""

    value: object
    origin: Origin
    written: str = ""
    place: Place | None = None


@dataclass(slots=True)
class Notes:
    """Fields and problems of a launch, as they are read."""

    fields: list[Field] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    strict: bool = False
    """Is what is not stated what the runtime takes without it?"""

    def problem(self, cause: str, verdict: Verdict, says: str, place: Place | None = None) -> None:
        """Note one, once."""
        problem = Problem(cause, verdict, says, place)
        if problem not in self.problems:
            self.problems.append(problem)

    def note(self, name: str, entry: Entry) -> None:
        """A field of ours."""
        self.fields.append(Field(name, entry.value, entry.origin, entry.written, entry.place))


Parse = Callable[[object, object], object]
"""A value as one of the kind of a default; null: it is none."""


def exact(value: object, default: object) -> object:
    """As JSON has it: its type counts, but for whole numbers written with a point."""
    if value is None:
        return default
    kind = type(default)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value if isinstance(value, kind) and isinstance(value, bool) == (kind is bool) else None


TRUE, FALSE = ("true", "yes", "y", "t", "on", "1"), ("false", "no", "n", "f", "off", "0")
"""Source: huggingface/accelerate utils/environment.py, str_to_bool."""


def spelled(value: object, default: object) -> object:
    """As YAML, options and variables have it: what it spells counts."""
    text = str(value)
    if isinstance(default, bool):
        return text.lower() in TRUE if text.lower() in (*TRUE, *FALSE) else None
    if isinstance(default, int):
        return int(text) if text.isdecimal() and len(text) < 10 else None
    return default if value is None else text


@dataclass(slots=True)
class Keys:
    """What a launch sets, by name, with where each stands."""

    notes: Notes
    entries: dict[str, Entry] = field(default_factory=dict)
    parse: Parse = spelled
    filled_in: str | None = None
    """Value for which another program writes one."""
    file: str | None = None
    """Where keys stand that are not there."""

    def place(self, name: Name) -> Place | None:
        """Where a key stands."""
        entry = self.entries.get(str(name))
        if entry is not None:
            return entry.place
        return Place(self.file, None) if self.file else None

    def problem(self, cause: str, verdict: Verdict, says: str, name: Name | None = None) -> None:
        """Note one, at the place of a key."""
        self.notes.problem(cause, verdict, says, None if name is None else self.place(name))

    def stops(self, cause: str, says: str, *names: Name, stated: bool = True) -> None:
        """What stops the runtime by values of such keys: unread where one of them is not stated.

        `stated`: is everything else that it comes of?
        """
        if self.notes.strict or (stated and all(map(self.has, names))):
            self.problem(cause, "illegal", says, names[0] if names else None)
            return
        place = self.place(names[0]) if names else None
        problem = Problem(cause, "unread", NOT_STATED + says, place, absent=True)
        self.notes.problems += [problem] if problem not in self.notes.problems else []

    def has(self, name: Name) -> bool:
        """Is it written?"""
        return str(name) in self.entries

    def entry(self, value: object, *names: Name) -> Entry:
        """A value with the first of the keys that is written, or with the default of the first."""
        written = (self.entries[str(name)] for name in names if self.has(name))
        default = Entry(value, "default", str(names[0]))
        return next(written, default)._replace(value=value)

    def raw(self, option: Option[T]) -> T:
        """The value as it is written, of whatever kind, or the default."""
        entry = self.entries.get(option.name)
        return option.default if entry is None else entry.value  # type: ignore[return-value]

    def open(self, option: Option[Any]) -> bool:
        """Does another program fill it in?"""
        entry = self.entries.get(option.name)
        return entry is not None and self.filled_in is not None and entry.value == self.filled_in

    def of(self, option: Option[T], default: T | None = None) -> T:
        """The value of a key, or its default; one of another kind is a problem."""
        default = option.default if default is None else default
        entry = self.entries.get(option.name)
        if entry is None:
            return default
        if self.open(option):
            says = (
                f'{option} = "{entry.value}" is filled in by the Trainer, taken as {default!r}: '
                "write it"
            )
            self.problem("auto_value", "unread", says, option)
            return default
        value = self.parse(entry.value, default)
        if value is not None and (value == default or _within(option, value)):
            return value  # type: ignore[return-value]
        says = f"{option} = {json.dumps(entry.value)[:60]} is no {_wanted(option)}: correct it"
        self.problem("wrong_kind", "illegal", says, option)
        return default

    def count(self, option: Option[int]) -> int | None:
        """A number of 1 or more; null: none, or another program fills it in."""
        entry = self.entries.get(option.name)
        return None if entry is None or self.open(option) else self.of(option) or None


def _within(option: Option[T], value: object) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return option.least <= value <= option.most
    return True


def _wanted(option: Option[T]) -> str:
    if isinstance(option.default, bool):
        return "true or false"
    return (
        "text"
        if isinstance(option.default, str)
        else f"number from {option.least} to {option.most}"
    )


def nested(written: Mapping[Name, object]) -> dict[str, object]:
    """Keys as sections in sections, in their order."""
    config: dict[str, object] = {}
    for key, value in written.items():
        if value is None:
            continue
        *sections, name = str(key).split(".")
        section = config
        for one in sections:
            section = section.setdefault(one, {})  # type: ignore[assignment]
        section[name] = value
    return config


def flat(config: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    """Keys of a nested configuration, `zero_optimization.stage`, with their values as text."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            text = str(value)
            yield f"{before}{name}", text.lower() if isinstance(value, bool) else text


KEY = re.compile(r"\s*[\"']?([^\s:\"'#]+)[\"']?\s*:")
MOST_PARTS = 10_000
"""Keys and values of a configuration that is looked into."""
FEW = 20
"""Keys that are unknown, as listed."""
LARGEST_YAML = 200_000
"""Characters; PyYAML reads so many in three seconds, and no published configuration has a tenth."""


def is_small(value: object) -> bool:
    """Has it few parts? Aliases of YAML may repeat one without end, or hold themselves."""
    left, seen = [value], 0
    while left and seen < MOST_PARTS:
        one = left.pop()
        seen += 1
        left += one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ()
    return not left


def yaml_mapping(notes: Notes, text: str, file: str, instead: str) -> dict[str, object] | None:
    """Keys of a YAML; null, with a problem that ends with what to do: it is none."""
    try:
        if len(text) > LARGEST_YAML:
            raise ValueError(f"more than {LARGEST_YAML // 1000} kB")
        config = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        says = f"{file} is no YAML: {' '.join(str(error).split())[:200]}: correct it"
    else:
        if isinstance(config, dict):
            return {str(name): value for name, value in config.items()}
        says = f"{file} holds no keys: {instead}"
    notes.problem("unread_config", "unread", says, Place(file, None))
    return None


def lines_of(text: str) -> dict[str, int]:
    """Line of each key of a YAML or JSON, the first of its name."""
    found: dict[str, int] = {}
    for at, line in enumerate(text.splitlines(), 1):
        if match := KEY.match(line):
            found.setdefault(match[1], at)
    return found


def few(names: Sequence[str]) -> Iterator[str]:
    """Names to be listed one by one, and of more how many there are."""
    yield from names[:FEW]
    if len(names) > FEW:
        yield f"each of {len(names) - FEW} more"

"""What packages outside this project add, found by the entry points that they declare.

A package names a `Plugin` under the group `trainplan.plugins`. Registries ask here when a name is
none of ours, or when all names are wanted; nothing else imports a plug-in. One that is broken, or
takes a name of ours, is left out, and a `PluginWarning` says whose it is and why.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar

from trainplan.costmodel.plugins.entry_points import GROUP, declaring

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
"""What a plug-in may call an entry: what a shell, an option and a file name take as it is."""
Value = TypeVar("Value")
Raw = TypeVar("Raw")
Names = Mapping[str, str]


class PluginWarning(UserWarning):
    """A plug-in, or a part of one, is left out."""


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """A command of a plug-in."""

    command: str
    """`module:NAME` of a `click.Command`."""
    summary: str
    """What `plan --help` says of it, in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What a package adds: data as files beside the module that holds this, all else by name.

    `module:NAME` is imported when the entry is first asked for, so holding many costs nothing.
    """

    gpus: str = ""
    """A file in the form of `costmodel/catalog/gpus.toml`."""
    fitted: str = ""
    """A file in the form of `costmodel/catalog/fitted.toml`, of GPUs in `gpus` alone."""
    hosts: str = ""
    """A file in the form of `costmodel/catalog/hosts.toml`."""
    models: str = ""
    """A folder of `NAME.json`, each a `config.json` with its `_source`."""
    optimizers: Names = field(default_factory=dict)
    """`costmodel.optimizers.Optimizer`; a runtime of the plug-in has it."""
    schedules: Names = field(default_factory=dict)
    """`costmodel.schedules.schedule.Schedule`, for `plan schedule`."""
    runtimes: Names = field(default_factory=dict)
    """`costmodel.runtimes.base.RuntimeTraits`."""
    exporters: Names = field(default_factory=dict)
    """`planner.runtimes.exporter.Exporter`, by runtime."""
    launchers: Names = field(default_factory=dict)
    """`planner.launchers.script.Launcher`."""
    readers: Names = field(default_factory=dict)
    """`planner.runtimes.Reader`, asked after ours."""
    importers: Names = field(default_factory=dict)
    """`profiler.importers.Importer`."""
    commands: Mapping[str, PluginCommand] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind in KINDS:
            for name in getattr(self, kind):
                if not NAME.fullmatch(name):
                    raise ValueError(f"{kind}: {name!r} is no name of a-z 0-9 . _ -")


KINDS = (
    *("optimizers", "schedules", "runtimes", "exporters", "launchers", "readers", "importers"),
    "commands",
)
"""Fields of `Plugin` that map names."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A plug-in and the package that brings it."""

    plugin: Plugin
    package: str
    version: str
    module: str
    """What the entry point names; data files lie beside it."""

    @property
    def who(self) -> str:
        """As messages and sources name it."""
        return f"plug-in {self.package} {self.version}"


@dataclass(frozen=True, slots=True)
class Added(Generic[Value]):
    """An entry and where it is from."""

    value: Value
    origin: Installed


LEFT_OUT: list[str] = []
"""What was left out in this process, for `plan doctor`."""


def left_out(who: str, what: str, error: BaseException | str) -> None:
    """Say in one line that a plug-in, or a part of it, is not used."""
    reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    text = " ".join(f"{who}: {what} is left out: {reason}".split())[:500]
    LEFT_OUT.append(text)
    warnings.warn(text, PluginWarning, stacklevel=2)


@cache
def installed() -> tuple[Installed, ...]:
    """Every plug-in of this environment, by the name of its package."""
    if not declaring():
        return ()
    from importlib.metadata import Distribution  # noqa: PLC0415 (slow, seldom needed)

    found: dict[str, tuple[Installed, ...]] = {}
    for record in declaring():
        try:
            one = Distribution.at(record)
            if one.name not in found:  # as an import, the first on the path
                found[one.name] = tuple(_loaded(one))
        except Exception as error:  # noqa: BLE001 (a stranger's file)
            left_out(f"plug-in {record}", "all of it", error)
    return tuple(plugin for _, all_of_it in sorted(found.items()) for plugin in all_of_it)


def _loaded(one: Distribution) -> Iterator[Installed]:
    """Plug-ins of a package; not one that cannot be imported, for others do not need it."""
    for entry in one.entry_points.select(group=GROUP):
        try:
            plugin = imported(entry.value, Plugin)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a stranger's code)
            left_out(f"plug-in {one.name} {one.version}", "all of it", error)
        else:
            yield Installed(plugin, one.name, one.version, entry.module)


def declared(kind: str) -> tuple[str, ...]:
    """Names that plug-ins give to entries of a kind, in their order; no entry is imported."""
    return tuple(dict.fromkeys(name for one in installed() for name in getattr(one.plugin, kind)))


def added(
    kind: str,
    ours: Iterable[str],
    entries: Callable[[Installed], Mapping[str, Raw]],
    make: Callable[[Installed, Raw], Value],
) -> dict[str, Added[Value]]:
    """What plug-ins add to the names that are ours.

    Args:
        kind: Field of `Plugin`, for messages.
        ours: Names that no plug-in may take.
        entries: Entries of one plug-in as it states them.
        make: An entry, ready for use. Whatever it raises leaves the entry out.
    """
    taken, found = set(ours), dict[str, Added[Value]]()
    for one in installed():
        try:
            stated = entries(one)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a stranger's file)
            left_out(one.who, kind, error)
            continue
        for name, raw in stated.items():
            if name in taken or name in found:
                whose = "trainplan itself" if name in taken else found[name].origin.who
                left_out(one.who, f"{kind}.{name}", f"{whose} has that name: rename it")
                continue
            try:
                found[name] = Added(make(one, raw), one)
            except (Exception, SystemExit) as error:  # noqa: BLE001 (a stranger's code)
                left_out(one.who, f"{kind}.{name}", error)
    return found


def imported(reference: str, wanted: type[Value]) -> Value:
    """What `module:NAME` stands for.

    Raises:
        TypeError: It is something else.
    """
    module, _, name = reference.partition(":")
    found: object = getattr(importlib.import_module(module), name)
    if not isinstance(found, wanted):
        raise TypeError(f"{reference} is no {wanted.__module__}.{wanted.__name__}")
    return found


class Registry(Mapping[str, Value]):
    """Entries of ours by name, and behind them those of plug-ins.

    One of ours is found without looking for plug-ins; all of them are looked for when another name
    is asked for, or every name.
    """

    def __init__(
        self, kind: str, ours: Mapping[str, Value], wanted: type[Value], *, called: str = "name"
    ) -> None:
        """`called` is the attribute of an entry that holds its name, where it has one."""
        self._kind, self._ours, self._wanted, self._called = kind, dict(ours), wanted, called
        self._all: dict[str, Value] | None = None
        self._whose: dict[str, str] = {}

    def __getitem__(self, name: str) -> Value:
        return self._ours[name] if name in self._ours else self._entries()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def _entries(self) -> Mapping[str, Value]:
        if self._all is None:
            self._all = self._ours  # for a plug-in that asks while it is imported
            theirs = added(
                self._kind,
                self._ours,
                lambda one: {x: (x, y) for x, y in getattr(one.plugin, self._kind).items()},
                lambda _, stated: self._entry(*stated),
            )
            self._all = self._ours | {name: one.value for name, one in theirs.items()}
            self._whose = {name: one.origin.who for name, one in theirs.items()}
        return self._all

    def _entry(self, name: str, reference: str) -> Value:
        found = imported(reference, self._wanted)
        own = getattr(found, self._called, name)
        if own != name:
            raise ValueError(f"{reference} calls itself {own!r}: give it the same name")
        return found

    def plugged(self) -> Mapping[str, str]:
        """Names from plug-ins, and which plug-in each is from."""
        self._entries()
        return self._whose

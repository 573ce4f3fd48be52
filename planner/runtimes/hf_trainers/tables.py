"""What differs between trainers, as data: names of their options, defaults, files they bring.

Names are read by `keys` of a table, and written by the same, the other way round.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
from typing import Any

Settings = Mapping[str, Any]
"""Keys of a trainer's own file, with their values."""


@dataclass(frozen=True, slots=True)
class Writes:
    """What a plan becomes beside settings that `Table.keys` names: all of it in own keys."""

    name: str
    """As `plan export --trainer` has it."""
    commit: str
    checked: str
    """What its own code said of such files (tests/runtimes)."""
    module: str
    """What every rank runs."""
    file: str
    """Of the settings; empty: they are options of the command."""
    call: str
    """Option that names it; empty: it stands alone."""
    axes: Mapping[str, frozenset[str]]
    """Choices of a layout that it has words for beside those that all have, by runtime."""
    first: Settings
    """Whatever the plan."""
    data: Mapping[str, str]
    """Keys whose values only the user knows, `NAME: what it is`; those inside another stand in
    `first`."""
    rows: Settings
    """Rows of documents that see one another; empty: full rows are the user's matter."""
    packed: Settings
    """Rows of documents that do not; empty: it has none."""
    whole: Settings
    """Every weight is trained."""
    adapters: Settings
    """Adapters: of `{rank}`, `{alpha}` and `{modules}`, or these joined by commas, `{modules,}`."""
    quantised: Settings
    """Beside these, frozen weights in 4 bits."""
    narrow: Settings
    """States in bf16, nothing is cast; empty: it has no word for it."""
    towers: Mapping[str, Settings] = field(default_factory=dict)
    """A vision tower, by what of it is frozen."""
    names: tuple[str, ...] = ()
    """Names of ours that it has as well, beside others of `keys`."""
    more: Mapping[str, Settings] = field(default_factory=dict)
    """Keys beside one, by our name, where that is on."""
    inside: Mapping[str, Settings] = field(default_factory=dict)
    """Keys inside one, by our name, where that holds others."""
    mesh: bool = False
    """Does the file name what shards, beside variables of the script?"""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """One trainer."""

    title: str
    source: str
    """Where its options stand: repository, commit and files."""
    programs: tuple[str, ...]
    """What starts it: the end of a path, a module, or a command with its first argument."""
    keys: Mapping[str, str]
    """Our name of an option, by its own; with `!` it is the opposite, empty: it says nothing."""
    defaults: Mapping[str, str]
    """What it takes where nothing is written, by our names."""
    shared: tuple[str, ...] = ()
    """Paths that others have as well: its own with a file of arguments, or with one of `marks`."""
    marks: tuple[str, ...] = ()
    """Options that only it has."""
    format: str = ""
    """Of its files, as `planner.formats` has it; empty: it has none that is known alone."""
    files: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Section `zero_optimization` of configurations of DeepSpeed that it brings, by their names."""
    engine: Mapping[str, str] = field(default_factory=dict)
    """Key of DeepSpeed that an option becomes, where it writes that configuration by itself."""
    switches: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Keys of DeepSpeed that an option sets."""
    sizes: Mapping[str, str] = field(default_factory=dict)
    """Size of the mesh of Accelerate that an option becomes."""
    ulysses: str = ""
    """Option that has ranks share a sequence, as the engine's `sequence_parallel_size` does."""
    starters: Mapping[str, str] = field(default_factory=dict)
    """Options of `accelerate launch` of configurations that it brings, by their names."""
    losses: Mapping[str, str] = field(default_factory=dict)
    """What is not priced, by the command or the value of `stage` or `rl`."""
    batch: int = 0
    """Sequences of a step that it aims at where no accumulation is written; 0: it does not."""
    writes: Writes | None = None
    """How a plan becomes a file of it; null: none is written."""


def _writes(read: dict[str, Any]) -> Writes:
    axes = {runtime: frozenset(names) for runtime, names in read["axes"].items()}
    return Writes(
        **{
            **read,
            "axes": axes,
            "notes": tuple(read.get("notes", ())),
            "names": tuple(read.get("names", ())),
        }
    )


def _table(text: str) -> Table:
    read: dict[str, Any] = json.loads(text)
    lists = {name: tuple(value) for name, value in read.items() if isinstance(value, list)}
    writes = _writes(read["writes"]) if "writes" in read else None
    return Table(**{**read, **lists, "writes": writes})


TABLES: tuple[Table, ...] = tuple(
    _table(resources.files(__package__).joinpath("tables", f"{name}.json").read_text("utf-8"))
    for name in ("llama_factory", "axolotl", "ms_swift", "trl", "openrlhf", "huggingface")
)
"""In the order in which they are tried; the last is that of scripts in general."""
SCRIPT = TABLES[-1]
WRITTEN: Mapping[str, Table] = MappingProxyType(
    {one.writes.name: one for one in TABLES if one.writes}
)
"""Those whose files are written, by the name that a user gives."""

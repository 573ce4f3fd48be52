"""What differs between trainers, as data: names of their options, defaults, files they bring."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any


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
    starters: Mapping[str, str] = field(default_factory=dict)
    """Options of `accelerate launch` of configurations that it brings, by their names."""
    losses: Mapping[str, str] = field(default_factory=dict)
    """What is not priced, by the command or the value of `stage` or `rl`."""
    batch: int = 0
    """Sequences of a step that it aims at where no accumulation is written; 0: it does not."""


def _table(text: str) -> Table:
    read: dict[str, Any] = json.loads(text)
    lists = {name: tuple(value) for name, value in read.items() if isinstance(value, list)}
    return Table(**{**read, **lists})


TABLES: tuple[Table, ...] = tuple(
    _table(resources.files(__package__).joinpath("tables", f"{name}.json").read_text("utf-8"))
    for name in ("llama_factory", "axolotl", "ms_swift", "trl", "openrlhf", "huggingface")
)
"""In the order in which they are tried; the last is that of scripts in general."""
SCRIPT = TABLES[-1]

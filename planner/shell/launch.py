"""A training command as it was written: words, their places, and what is wrong with them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["illegal", "ignored", "unread", "unmodelled"]
"""The runtime stops; it takes no notice; we cannot know without running the script; we can read it,
but the cost model has no such thing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands."""

    file: str | None
    """As the user named it; null: the command line itself."""
    line: int | None
    """From 1; null where lines mean nothing."""

    @property
    def text(self) -> str:
        """`train.sh:12`; of the command line nothing."""
        name = (self.file or "").rpartition("/")[2]
        return f"{name}:{self.line}" if name and self.line else name


COMMAND_LINE = Place(None, None)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command after expansion, as far as it goes without running anything."""

    text: str
    place: Place
    unresolved: tuple[str, ...] = ()
    """Variables and constructs that it depends on and that only a run would tell, as written:
    `$(hostname)`, `NODE_RANK`. Where there are some, `text` holds them unexpanded."""
    fallback: bool = False
    """Does it rest on the default of a variable that the script takes from elsewhere?"""


def way_to_state(unresolved: Iterable[str]) -> str:
    """How to state what only a run would tell: of variables their values, else the text itself."""
    names = [name.strip("${}") for name in unresolved]
    if all(name.isidentifier() or name.isdecimal() for name in names):
        return "with " + " and ".join(f"--set {name}=VALUE" for name in names)
    return "as a plain value, or hold it in a variable (NAME=$(...)) and give --set NAME=VALUE"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, ignored or unread."""

    cause: str
    """A name that stays: `tp_divides_heads`; of a layout's rule, the name of that rule."""
    verdict: Verdict
    says: str
    """What, and what to do: one sentence."""
    place: Place | None = None
    absent: bool = False
    """Is it wrong only where no line that was not read says otherwise? Nothing is judged by it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One training command: what every rank runs, and on how many of them."""

    starter: str
    """`torchrun`, `srun`, `deepspeed`, `accelerate`, `mpirun` or `python`."""
    program: Word
    """A file, or a module where `is_module`."""
    is_module: bool
    arguments: tuple[Word, ...]
    """Of the program."""
    environment: Mapping[str, Word]
    """Variables that the script exports or sets before the command."""
    nodes: Word | None = None
    """Null: not stated; torchrun and python then take 1."""
    gpus_per_node: Word | None = None
    """Ranks on each node; null: not stated; torchrun and python then take 1, others all GPUs."""
    ranks: Word | None = None
    """All ranks, of starters that count them so: `mpirun -np`, `srun -n`, `--num_processes` of
    Accelerate."""
    gpu: Word | None = None
    """What a scheduler, a resource or a type of machine calls the GPU: `a100`, `p5.48xlarge`."""
    features: Word | None = None
    """Properties of nodes that a scheduler is asked for, some of which may name a GPU:
    `a100_80&ib`."""
    starter_arguments: tuple[Word, ...] = ()
    """Other words for the starter, such as `--config_file x.yaml` of Accelerate."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """Of a configuration alone: its keys."""
    format: str = ""
    """Of a configuration alone: whose it is, a name of `planner.formats`."""
    container: Word | None = None
    """What names the image that it runs in: `--container-image=nvcr.io/nvidia/nemo:26.04`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Text of files that the script writes before, by their names without folders."""
    problems: tuple[Problem, ...] = ()
    """Of the script itself: what was not taken or not read, and where."""

    @property
    def alone(self) -> bool:
        """Is it a configuration, without the command that reads it?"""
        return self.starter == "file"


def number(word: Word | None) -> int | None:
    """A count that is known."""
    if word is None or word.unresolved or not re.fullmatch(r"\d{1,9}", word.text, re.ASCII):
        return None
    return int(word.text)

"""What a shell gets when a name is half typed; reads `names` alone, so that it is quick."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import click
from click.shell_completion import CompletionItem

from trainplan.cli.options.names import (
    GPUS,
    HOSTS,
    KNOBS,
    LAYOUT_FIELDS,
    MACHINES,
    MODELS,
    OBJECTIVES,
    PRECISIONS,
    REPOSITORIES,
)

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
TOWER_FIELDS = ("samples=", "patches=", "frozen=none|encoder|all")
TRAINED = ("full", "lora:rank=", "qlora:rank=", "frozen:layers=", "frozen:tower")
CHOICES = (*LAYOUT_FIELDS, "tower=unified|apart")
VARIED = (
    *(f"{knob}=" for knob in KNOBS if knob not in ("gpu", "precision")),
    f"gpu={'|'.join(GPUS)}",
    f"precision={'|'.join(PRECISIONS)}",
    *LAYOUT_FIELDS,
)
FRONTS = tuple(
    f"{one},{other}"
    for one in OBJECTIVES
    for other in OBJECTIVES
    if one != other and "context" not in (one, other)
)


def names(*known: Sequence[str], files: bool = False) -> Completion:
    """One of some names, in any case; a file where none begins so and `files` may be named."""

    def complete(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        return _items((name for some in known for name in some), typed, files=files)

    return complete


def pairs(known: Sequence[str], *, joined: bool = False) -> Completion:
    """NAME=VALUE, of texts `name=value|other`; several of them with commas where `joined`."""

    def complete(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        before, comma, last = typed.rpartition(",") if joined else ("", "", typed)
        return _items((f"{before}{comma}{one}" for one in _paired(known, last)), typed)

    return complete


def _paired(known: Sequence[str], typed: str) -> Iterator[str]:
    """Names with their sign, and once one is typed, its values."""
    for text in known:
        name, equals, values = text.partition("=")
        if typed.startswith(name + equals):
            yield from (f"{name}{equals}{value}" for value in values.split("|") if values)
        else:
            yield name + equals


MODEL = names(MODELS, REPOSITORIES, files=True)
GPU = names(GPUS)
LAYOUT = pairs(LAYOUT_FIELDS, joined=True)


def cluster(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """The part of a cluster that is being typed: a machine, a GPU or a host; else a file."""
    before, plus, part = typed.rpartition("+")
    known: Iterable[str] = MACHINES
    stem = ""
    if found := re.match(r"[^@]+@", part):
        stem, known = found[0], HOSTS
    elif found := re.match(r"\d+x\d+:", part):
        stem, known = found[0], GPUS
    elif found := re.match(r"\d+x(?=\D|$)", part):
        stem, known = found[0], (*GPUS, *MACHINES)
    return _items((f"{before}{plus}{stem}{name}" for name in known), typed, files=True)


def _items(known: Iterable[str], typed: str, *, files: bool = False) -> list[CompletionItem]:
    found = [name for name in known if name.lower().startswith(typed.lower())]
    if found or not files:
        return [CompletionItem(name) for name in found]
    return [CompletionItem(typed, type="file")]

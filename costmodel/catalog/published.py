"""The published runs whose step times are scored: how far an answer is from what was measured.

`published_runs.csv` holds one run a line. `make accuracy` writes it from the records of
`examples/accuracy` and from the estimate of each; docs/accuracy.md is of the same runs.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import get_type_hints

from trainplan.costmodel.documents import PublishedRun, Shape

NAME = "published_runs.csv"
_READ: Mapping[object, Callable[[str], object]] = {
    str: str,
    int: int,
    float: float,
    tuple[str, ...]: lambda text: tuple(text.split()),
}
"""How a field is read, by its type."""
_SHAPE = {name: _READ[kind] for name, kind in get_type_hints(Shape).items()}
_OWN = {name: _READ[kind] for name, kind in get_type_hints(PublishedRun).items() if name != "shape"}


@cache
def published_runs() -> tuple[PublishedRun, ...]:
    """All of them, in the order of their records."""
    text = resources.files(__name__.rpartition(".")[0]).joinpath(NAME).read_text(encoding="utf-8")
    return tuple(_runs(line for line in text.splitlines() if not line.startswith("#")))


def _runs(lines: Iterable[str]) -> Iterator[PublishedRun]:
    for row in csv.DictReader(lines):
        shape = Shape(**{name: read(row[name]) for name, read in _SHAPE.items()})  # type: ignore[arg-type]
        own = {name: read(row[name]) for name, read in _OWN.items()}
        yield PublishedRun(**own, shape=shape)  # type: ignore[arg-type]


def csv_lines(runs: Sequence[PublishedRun]) -> Iterator[Sequence[str]]:
    """Cells of the file, the names of the columns first."""
    yield (*_OWN, *_SHAPE)
    for run in runs:
        own = [_cell(getattr(run, name)) for name in _OWN]
        yield (*own, *(_cell(getattr(run.shape, name)) for name in _SHAPE))


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)

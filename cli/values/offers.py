"""`--offers`: clusters at a price, in a file that the user keeps or on the command line."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
from pydantic import Field

from trainplan.cli.files import Document, is_there, read_document, read_text
from trainplan.cli.values.islands import FIELDS, with_islands
from trainplan.cli.values.stated import Question, question
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec import Spec

FORMS = (
    "a YAML, JSON or CSV file of name, cluster, price_per_gpu_hour and currency, or 8x8:h100=2.5"
)
STATED = ("cluster", "nodes", "gpus", "gpu", "price")
"""Options that state what offers state."""
MOST = 64


class Offered(Spec):
    """A line of the file."""

    name: str = ""
    """By default as its cluster."""
    cluster: str = Field(min_length=1)
    price_per_gpu_hour: float | str
    currency: str = ""
    nic: str | None = None

    @property
    def price(self) -> str:
        """As `--price` takes it."""
        return f"{self.price_per_gpu_hour} {self.currency}".strip()


class OfferList(Spec):
    """The file."""

    offers: tuple[Offered, ...] = Field(min_length=1, max_length=MOST)


def question_of(
    *, offers: str | None = None, allow: tuple[str, ...] = (), **stated: object
) -> Question:
    """The job of the options, on the first of the offers where there are some, with all of them.

    Raises:
        PlanError: As `question`, or offers are wrong or given with another cluster.
    """
    outer = {name: stated.pop(name, None) for name in FIELDS}

    def build(**fields: object) -> Question:
        made: Callable[..., Question] = question
        return with_islands(made(**fields), allow, outer)

    if offers is None:
        return build(**stated)
    if given := [name for name in STATED if stated.get(name) is not None]:
        raise click.UsageError(f"--offers and --{given[0]} both state the cluster: give one")
    found = {
        one.name or one.cluster: build(
            **{
                **stated,
                "cluster": one.cluster,
                "price": one.price,
                "nic": one.nic or stated["nic"],
            }
        )
        for one in read_offers(offers)
    }
    first = next(iter(found.values()))
    return replace(first, offers=tuple(found.items()))


def read_offers(text: str) -> tuple[Offered, ...]:
    """Offers of a file, or of `8x8:h100=2.5,4x8:a100=1.1`.

    Raises:
        PlanError: There are none, a line is wrong, or two have one name.
    """
    path = Path(text)
    if is_there(path):
        is_csv = path.suffix.lower() == ".csv"
        document = _of_csv(path) if is_csv else read_document(path, entries="offers")
    elif "=" in text:
        pairs = [part.rpartition("=") for part in text.split(",")]
        lines = [{"cluster": name.strip(), "price_per_gpu_hour": p.strip()} for name, _, p in pairs]
        document = Document(Path("--offers"), {"offers": lines})
    else:
        raise SpecError(f"--offers {text[:60]!r}: no such file; give {FORMS}")
    found = document.validated(OfferList).offers
    names = [one.name or one.cluster for one in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise document.error(f"two offers are called {min(twice)!r}: give each a name of its own")
    return found


def _of_csv(path: Path) -> Document:
    lines = csv.DictReader(read_text(path, expected="CSV").splitlines(), skipinitialspace=True)
    return Document(path, {"offers": [dict(_cells(line)) for line in lines]})


def _cells(line: dict[str | None, str | None]) -> Iterator[tuple[str, object]]:
    """Cells that are not empty; one beyond the header is of a field that is unknown."""
    for name, cell in line.items():
        if cell:
            yield (name or "a cell beyond the header").strip(), cell

"""The file of `--stage-times`: durations of every virtual stage's passes."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainplan.cli.files import Document, read_document
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec import Spec
from trainplan.planner.schedules import StageTimes

ENTRIES = "stages"
Duration = Annotated[float, Field(ge=0, strict=True)]
Durations = Annotated[tuple[Duration, ...], Field(min_length=1)]


class Entry(Spec):
    """One virtual stage."""

    forward: Duration
    input_grad: Duration
    weight_grad: Duration
    input_grad_frees_bytes: Duration = 0.0
    weight_grad_frees_bytes: Duration = 0.0


class Entries(Spec):
    """Virtual stages in order."""

    stages: tuple[Entry, ...]


class Columns(Spec):
    """One list for each pass."""

    forward: Durations
    input_grad: Durations
    weight_grad: Durations
    input_grad_frees_bytes: tuple[Duration, ...] = ()
    weight_grad_frees_bytes: tuple[Duration, ...] = ()


def read_stage_times(path: Path, stages: int) -> tuple[StageTimes, ...]:
    """Durations of `stages` virtual stages, in order.

    Raises:
        FileError: The file cannot be read, has another number of entries, or one is wrong.
    """
    document = read_document(path, entries=ENTRIES)
    found = _entries(document) if ENTRIES in document.values else _columns(document)
    if len(found) != stages:
        raise document.error(
            f"{len(found)} entries, but pp * vpp = {stages} virtual stages: state one for each"
        )
    try:
        return tuple(one.checked(f"entry {number}") for number, one in enumerate(found))
    except SpecError as error:
        raise document.error(str(error)) from error


def _entries(document: Document) -> tuple[StageTimes, ...]:
    found = document.validated(Entries).stages
    return tuple(StageTimes(**one.model_dump()) for one in found)


def _columns(document: Document) -> tuple[StageTimes, ...]:
    if document.values.keys().isdisjoint(Columns.model_fields):
        raise document.error(
            "no durations: write a list of virtual stages with forward, input_grad and weight_grad "
            "each, or these three as lists"
        )
    found = document.validated(Columns).model_dump()
    stated = {name: column for name, column in found.items() if column}
    if len({len(column) for column in stated.values()}) > 1:
        counts = ", ".join(f"{name} has {len(column)}" for name, column in stated.items())
        raise document.error(f"{counts} entries: make the lists equally long")
    rows = zip(*stated.values(), strict=True)
    return tuple(StageTimes(**dict(zip(stated, row, strict=True))) for row in rows)

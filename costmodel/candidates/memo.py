"""Answers of formulas of one layout, for layouts that come one by one."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from operator import is_
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.columns import Column
from trainplan.costmodel.layouts import FIELDS, LayoutTable

T = TypeVar("T")
P = ParamSpec("P")
REMEMBERED = 4096
"""Answers kept of every formula; some kB each."""


class _Read(LayoutTable):
    """A table of one row that knows which of its columns were read."""

    __slots__ = ("columns", "source")
    columns: list[str] | None
    """In the order in which they were first read; none when nobody may read any more."""
    source: LayoutTable

    def __init__(self, source: LayoutTable, **own: Column) -> None:
        fields: dict[str, object] = {"source": source, "columns": [], **own}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Column:
        """A column that was not read before."""
        if name not in FIELDS:
            raise AttributeError(name)
        if self.columns is None:
            raise TypeError(f"{name} is read of a layout whose answer is remembered")
        self.columns.append(name)
        value = cast("Column", getattr(self.source, name))
        object.__setattr__(self, name, value)
        return value

    def __len__(self) -> int:
        return 1

    def closed(self) -> list[str]:
        """The columns that were read; nobody may read others any more."""
        read = self.columns or []
        object.__setattr__(self, "columns", None)
        return read

    def replaced(self, **columns: Column) -> LayoutTable:
        """The same row with some columns replaced; what is read of the others is read here."""
        return _Read(self, **columns)


class _Branch(dict[Any, "_Branch | _Answer"]):
    """Answers of a formula by the values of a column that it reads."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self.column = column


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a formula says, and the objects that it is known by: none other takes their place."""

    of: object
    known_by: tuple[object, ...]


def remembered(
    formula: Callable[Concatenate[Candidates, P], T],
) -> Callable[Concatenate[Candidates, P], T]:
    """Keep what a formula says of one row, for layouts that come one by one.

    An answer depends on the columns that were read for it, whichever these are, and on the
    identity of the other arguments. Of many rows the last answer is kept, for the same table.
    Answers are shared: nobody writes to them.
    """
    answers = _Branch("")
    number = count()
    last = _Answer(None, ())

    def remembering(candidates: Candidates, /, *others: P.args, **named: P.kwargs) -> T:
        nonlocal last
        table = candidates.table
        if named:
            return formula(candidates, *others, **named)
        job, machine, traits = candidates.job, candidates.machine, candidates.traits
        if len(table) != 1:
            by, kept = (table, job, machine, traits, *others), last
            if len(by) != len(kept.known_by) or not all(map(is_, by, kept.known_by)):
                last = kept = _Answer(formula(candidates, *others, **named), by)
            return cast("T", kept.of)
        key = (id(job), id(machine), id(traits), *map(id, others))
        at = answers.get(key)
        while type(at) is _Branch:
            at = at.get(getattr(table, at.column).item())
        if isinstance(at, _Answer):
            return cast("T", at.of)
        read = _Read(table)
        answer = formula(candidates.with_table(read), *others, **named)
        if next(number) % REMEMBERED == 0:
            answers.clear()
        place, value = answers, cast("object", key)
        for column in read.closed():
            branch = place.get(value)
            if branch is None:
                branch = place[value] = _Branch(column)
            assert isinstance(branch, _Branch)
            assert branch.column == column
            place, value = branch, getattr(table, column).item()
        place[value] = _Answer(answer, (job, machine, traits, *others))
        return answer

    remembering.__doc__ = formula.__doc__
    return remembering

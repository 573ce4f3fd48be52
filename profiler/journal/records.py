"""What a run measured so far: one JSON record a line, only ever appended to.

A task is written down when it starts and when it ends. One that started and did not end stopped the
whole run; it is tried once more, and after a second time it is passed over and listed as failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, TypeAdapter, ValidationError, model_validator

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.base.validation_errors import first_complaint
from trainplan.costmodel.spec.base import Spec
from trainplan.costmodel.spec.evidence.profile import Failure, Flag, Host, Point, Software, Timing
from trainplan.profiler.journal.samples import Samples, replayed, timings
from trainplan.profiler.task import Request

SCHEMA = "trainplan/profile-journal/v1"
MOST_STARTS = 2
"""A task that started this often and never ended is passed over."""
AGAIN = "remove the journal, or measure anew with --restart"


class Header(Spec):
    """The first record: what is measured, and on what."""

    record: Literal["header"] = "header"
    schema_name: Literal["trainplan/profile-journal/v1"] = Field(
        "trainplan/profile-journal/v1", alias="schema"
    )
    created: str
    """ISO 8601, UTC."""
    request: Request
    software: Software
    hosts: tuple[Host, ...]


class Start(Spec):
    """A task begins."""

    record: Literal["start"] = "start"
    item: str
    key: str


class Interrupted(Spec):
    """The user stopped the run in a task that began: no fault of the task."""

    record: Literal["interrupted"] = "interrupted"
    item: str
    key: str


class Done(Spec):
    """A task ended well."""

    record: Literal["done"] = "done"
    item: str
    key: str
    seconds: NonNegativeFloat
    """How long it took to measure."""
    points: tuple[Point, ...]
    samples: tuple[Samples, ...] = ()
    """All that was timed for it, in order; none in a journal of a former version."""

    @model_validator(mode="after")
    def _samples_are_of_points(self) -> Done:
        known = {(one.point, one.field) for one in timings(self.points)}
        for one in self.samples:
            if one.timing and (one.point, one.timing) not in known:
                raise ValueError(
                    f"samples of {one.timing} of point {one.point}, which is not there"
                )
        return self


class Failed(Spec):
    """A task ended with an error and the run went on, or it stopped the run twice."""

    record: Literal["failed"] = "failed"
    item: str
    key: str
    failure: Failure


class Remark(Spec):
    """Something to know about tasks that ended before."""

    record: Literal["remark"] = "remark"
    item: str
    keys: tuple[str, ...]
    flags: tuple[Flag, ...]
    """For all timings of these tasks."""
    note: str


Record = Annotated[
    Header | Start | Interrupted | Done | Failed | Remark, Field(discriminator="record")
]
RECORDS: TypeAdapter[Record] = TypeAdapter(Record)


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task as the journal knows it."""

    item: str
    key: str


@dataclass(frozen=True, slots=True)
class JournalContent:
    """All that a journal says."""

    header: Header
    points: tuple[Point, ...]
    """Their timings worked out anew from the samples, where there are any."""
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]
    done: frozenset[TaskName]
    """Ended well or failed: nothing to measure again."""
    starts: Mapping[TaskName, int]
    """How often a task that never ended has stopped the run."""
    seconds: float
    """Spent in tasks that ended well."""


def line_of(record: Record) -> str:
    """The record as a line of the journal."""
    return record.model_dump_json(by_alias=True, exclude_defaults=False) + "\n"


def read_journal(text: str) -> JournalContent:
    """What the journal says; a last line that was cut off does not count.

    Raises:
        SpecError: It is no journal, of another version, or broken in the middle.
    """
    records = _records(text)
    if not records or not isinstance(records[0], Header):
        raise SpecError(f"the journal does not begin with a header of {SCHEMA}: {AGAIN}")
    starts = _starts(records)
    settled = [record for record in records if isinstance(record, Done | Failed)]
    done = [record for record in settled if isinstance(record, Done)]
    remarks = [record for record in records if isinstance(record, Remark)]
    return JournalContent(
        header=records[0],
        points=tuple(
            flagged(point, _flags_of(record, remarks))
            for record in done
            for point in replayed(record.points, record.samples)
        ),
        failures=tuple(dict.fromkeys(r.failure for r in settled if isinstance(r, Failed))),
        notes=tuple(dict.fromkeys(remark.note for remark in remarks if remark.note)),
        done=frozenset(TaskName(record.item, record.key) for record in settled),
        starts=starts,
        seconds=sum(record.seconds for record in done),
    )


def _records(text: str) -> list[Record]:
    lines = text.split("\n")[:-1]  # what follows the last line break was cut off
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(RECORDS.validate_json(line))
        except ValidationError as error:
            raise SpecError(
                f"line {number} of the journal is no record of {SCHEMA} "
                f"({first_complaint(error).text}): {AGAIN}"
            ) from error
    return records


def _starts(records: Iterable[Record]) -> Mapping[TaskName, int]:
    """Starts with no end, by task."""
    starts: Counter[TaskName] = Counter()
    for record in records:
        if isinstance(record, Start):
            starts[TaskName(record.item, record.key)] += 1
        elif isinstance(record, Interrupted):
            starts[TaskName(record.item, record.key)] -= 1
        elif isinstance(record, Done | Failed):
            del starts[TaskName(record.item, record.key)]
    return {name: count for name, count in starts.items() if count > 0}


def _flags_of(record: Done, remarks: Iterable[Remark]) -> tuple[Flag, ...]:
    mine = (r for r in remarks if r.item == record.item and record.key in r.keys)
    return tuple(flag for remark in mine for flag in remark.flags)


def flagged(point: Point, flags: Iterable[Flag]) -> Point:
    """The point with flags on each of its timings."""
    changed = {
        name: value.model_copy(update={"flags": tuple(dict.fromkeys((*value.flags, *flags)))})
        for name, value in point
        if isinstance(value, Timing)
    }
    return point.model_copy(update=changed)


def must_match(mine: Header, found: Header) -> None:
    """A journal goes on only with the same request on the same kind of machine.

    Raises:
        SpecError: Something differs.
    """
    parts = (
        ("a request", mine.request, found.request),
        ("software", mine.software, found.software),
    )
    for what, now, before in parts:
        if now != before:
            fields = [name for name, value in now if value != getattr(before, name)]
            raise SpecError(
                f"the journal is of {what} with another {' and '.join(fields)}: {AGAIN}"
            )
    if _machines(mine) != _machines(found):
        raise SpecError(
            f"the journal is of {_described(found)}, this run has {_described(mine)}: {AGAIN}"
        )


def _machines(header: Header) -> list[tuple[str, ...]]:
    return sorted((str(host.num_gpus), *host.gpu_names) for host in header.hosts)


def _described(header: Header) -> str:
    counts = Counter(
        f"{host.num_gpus} x {host.gpu_names[0] if host.gpu_names else 'CPU'}"
        for host in header.hosts
    )
    return " and ".join(f"{count} node(s) of {kind}" for kind, count in counts.items())

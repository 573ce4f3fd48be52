"""What a run measured so far: one JSON record a line, only ever appended to.

A task is written down when it starts and when it ends. One that started and did not end stopped the
whole run; it is tried once more, and after a second time it is passed over and listed as failed.
A task that is there twice was measured again, as its timings were doubtful. Every record has a
checksum: of sixty digits flipped on a drive nineteen were read as other numbers without one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal
from zlib import crc32

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.profiles import Failure, Flag, Host, Point, Software
from trainplan.costmodel.spec import Spec, first_complaint
from trainplan.profiler.journal.attempts import MOST_ATTEMPTS, Attempt, best_known, noise_of
from trainplan.profiler.journal.samples import Samples, timings
from trainplan.profiler.task import Request

SEAL = re.compile(r',"crc32":"([0-9a-f]{8})"\}\r?$')
"""The last field of a record: of the text without it. Line ends that a copy changed are no harm.

Source: any change of up to 32 bits in a row changes a CRC of 32 bits, and of other changes all but
one of 2**32 (Peterson and Brown, Cyclic Codes for Error Detection, Proceedings of the IRE 1961).
"""


def sealed(record: str) -> str:
    """A record, which is a JSON object with fields, with its checksum."""
    return f'{record[:-1]},"crc32":"{_sum(record)}"}}'


def unsealed(text: str, journal: str, redo: str, again: str) -> Iterator[str]:
    """The records of whole lines, without their checksums.

    A journal whose first line has none is of a former version: its lines may have none. `redo` says
    what happens when a line is removed, `again` how all is made anew.

    Raises:
        SpecError: A line is not as it was written.
    """
    lines = text.split("\n")[:-1]
    needed = bool(lines) and SEAL.search(lines[0]) is not None
    for number, line in enumerate(lines, start=1):
        seal = SEAL.search(line)
        record = line if seal is None else f"{line[: seal.start()]}}}"
        if (needed and seal is None) or (seal and seal[1] != _sum(record)):
            mend = again if number == 1 else f"remove the line and {redo}, or {again}"
            raise SpecError(
                f"line {number} of {journal} is not as it was written, its checksum is "
                f"{'wrong' if seal else 'missing'}: {mend}"
            )
        yield record


def _sum(record: str) -> str:
    return f"{crc32(record.encode()):08x}"


SCHEMA = "trainplan/profile-journal/v1"
MOST_STARTS = 2
"""A task that started this often and never ended is passed over."""
REDO = "its task is measured again"
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

    def must_match(self, found: Header) -> None:
        """A journal goes on only with the same request on the same kind of machine.

        Raises:
            SpecError: Something differs.
        """
        parts = (
            ("a request", self.request, found.request),
            ("software", self.software, found.software),
        )
        for what, now, before in parts:
            if now != before:
                fields = [name for name, value in now if value != getattr(before, name)]
                raise SpecError(
                    f"the journal is of {what} with another {' and '.join(fields)}: {AGAIN}"
                )
        if _machines(self) != _machines(found):
            raise SpecError(
                f"the journal is of {_described(found)}, this run has {_described(self)}: {AGAIN}"
            )


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
    """Something to know about tasks that ended before, of each the last time."""

    record: Literal["remark"] = "remark"
    item: str
    keys: tuple[str, ...]
    flags: tuple[Flag, ...]
    """For all timings of these tasks."""
    note: str


class LeftOut(Spec):
    """What a run ended without, as its budget was spent."""

    record: Literal["left out"] = "left out"
    budget_seconds: PositiveFloat
    keys: Mapping[str, tuple[str, ...]]
    """Of tasks, by item."""


Record = Annotated[
    Header | Start | Interrupted | Done | Failed | Remark | LeftOut, Field(discriminator="record")
]
RECORDS: TypeAdapter[Record] = TypeAdapter(Record, config=ConfigDict(defer_build=True))


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
    seconds: Mapping[TaskName, tuple[float, ...]]
    """Spent in each task that ended well, every time."""
    doubts: Mapping[TaskName, float]
    """Tasks that another time may know better, with the noise of their timings."""
    left_out: LeftOut | None = None
    """What the last run had no time for, without what was measured since."""


def line_of(record: Record) -> str:
    """The record as a line of the journal."""
    return sealed(record.model_dump_json(by_alias=True, exclude_defaults=False)) + "\n"


def read_journal(text: str) -> JournalContent:
    """What the journal says; a last line that was cut off does not count.

    Raises:
        SpecError: It is no journal, of another version, or broken in the middle.
    """
    records = _records(text)
    if not records or not isinstance(records[0], Header):
        raise SpecError(f"the journal does not begin with a header of {SCHEMA}: {AGAIN}")
    if any(isinstance(record, Header) for record in records[1:]):
        raise SpecError(f"the journal has two headers, it is of two runs put together: {AGAIN}")
    attempts = _attempts(records)
    points = {name: best_known(times) for name, times in attempts.items()}
    failed = {TaskName(r.item, r.key): r.failure for r in records if isinstance(r, Failed)}
    done = frozenset(attempts) | frozenset(failed)
    return JournalContent(
        header=records[0],
        points=tuple(point for found in points.values() for point in found),
        failures=tuple(dict.fromkeys(why for name, why in failed.items() if name not in attempts)),
        notes=tuple(dict.fromkeys(r.note for r in records if isinstance(r, Remark) if r.note)),
        done=done,
        starts=_starts(records),
        seconds={name: tuple(one.seconds for one in times) for name, times in attempts.items()},
        doubts={
            name: noise_of(found)
            for name, found in points.items()
            if noise_of(found) and len(attempts[name]) < MOST_ATTEMPTS and name not in failed
        },
        left_out=_left_out(records, done),
    )


def _records(text: str) -> list[Record]:
    records = []
    for number, line in enumerate(unsealed(text, "the journal", REDO, AGAIN), start=1):
        try:
            records.append(RECORDS.validate_json(line))
        except ValidationError as error:
            raise SpecError(
                f"line {number} of the journal is no record of {SCHEMA} "
                f"({first_complaint(error).text}): {AGAIN}"
            ) from error
    return records


def _attempts(records: Iterable[Record]) -> Mapping[TaskName, list[Attempt]]:
    """Every time that a task ended well; remarks are of the last one before them."""
    attempts: dict[TaskName, list[Attempt]] = {}
    for record in records:
        if isinstance(record, Done):
            times = attempts.setdefault(TaskName(record.item, record.key), [])
            times.append(Attempt(record.points, record.samples, record.seconds))
        elif isinstance(record, Remark):
            for key in record.keys:
                for attempt in attempts.get(TaskName(record.item, key), [])[-1:]:
                    attempt.flags.extend(record.flags)
    return attempts


def _left_out(records: Iterable[Record], done: frozenset[TaskName]) -> LeftOut | None:
    last = [record for record in records if isinstance(record, LeftOut)][-1:]
    for record in last:
        keys = {
            item: tuple(key for key in keys if TaskName(item, key) not in done)
            for item, keys in record.keys.items()
        }
        left = {item: some for item, some in keys.items() if some}
        return record.model_copy(update={"keys": left}) if left else None
    return None


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


def _machines(header: Header) -> list[tuple[str, ...]]:
    return sorted((str(host.num_gpus), *host.gpu_names) for host in header.hosts)


def _described(header: Header) -> str:
    counts = Counter(
        f"{host.num_gpus} x {host.gpu_names[0] if host.gpu_names else 'CPU'}"
        for host in header.hosts
    )
    return " and ".join(f"{count} node(s) of {kind}" for kind, count in counts.items())

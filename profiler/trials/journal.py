"""`trials.jsonl`: what was tried for a job and what came of it, one JSON record a line.

The first line says which job; a line follows after every trial, and is on the drive before the next
one starts. A trial that was interrupted has none: it is tried again.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.documents import Outcome, Trial
from trainplan.costmodel.job import Job
from trainplan.costmodel.spec import Spec, first_complaint
from trainplan.profiler.journal import LineFile, sealed, unsealed

FILE = "trials.jsonl"
SCHEMA = "trainplan/trials/v1"
REDO = "its trial is run again"
AGAIN = "remove the file or choose another output, and start without --resume"


class Header(Spec):
    """The first record."""

    record: Literal["header"] = "header"
    schema_name: Literal["trainplan/trials/v1"] = Field("trainplan/trials/v1", alias="schema")
    created: str
    """ISO 8601, UTC."""
    job: Job
    ran_by: str
    """What ran the trials: those of a machine on paper say nothing of a real one."""


class Tried(Spec):
    """A trial and how it ended."""

    record: Literal["trial"] = "trial"
    trial: Trial
    outcome: Outcome


RECORDS: TypeAdapter[Header | Tried] = TypeAdapter(
    Annotated[Header | Tried, Field(discriminator="record")]
)


class TrialJournal:
    """The trials of one job, in a file."""

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path, AGAIN)

    def begin(self, job: Job, ran_by: str) -> None:
        """Forget what is there, and say which job follows, and what runs its trials.

        Raises:
            ProfilerError: The file cannot be replaced.
        """
        self._file.remove()
        created = datetime.now(UTC).isoformat(timespec="seconds")
        self._file.append_line(_line(Header(created=created, job=job, ran_by=ran_by)))

    def append(self, trial: Trial, outcome: Outcome) -> None:
        """Keep how a trial ended."""
        self._file.append_line(_line(Tried(trial=trial, outcome=outcome)))

    def read(self, job: Job, ran_by: str) -> tuple[Tried, ...] | None:
        """What was tried for this job, in order; null where nothing was begun.

        Raises:
            SpecError: The file is no journal, is of another job, or something else ran the trials.
        """
        lines = unsealed(self._file.whole_lines(), f"{self._file.path}", REDO, AGAIN)
        records = [self._record(number, line) for number, line in enumerate(lines, start=1)]
        if not records:
            return None
        header = records[0]
        if not isinstance(header, Header):
            raise SpecError(f"{self._file.path} does not begin with a header of {SCHEMA}: {AGAIN}")
        if header.job != job:
            fields = [name for name, value in job if value != getattr(header.job, name)]
            raise SpecError(
                f"{self._file.path} is of a job with another {' and '.join(fields)}: {AGAIN}"
            )
        if header.ran_by != ran_by:
            raise SpecError(
                f"trials of {self._file.path} ran by {header.ran_by}, not by {ran_by}: {AGAIN}"
            )
        return tuple(record for record in records if isinstance(record, Tried))

    def _record(self, number: int, line: str) -> Header | Tried:
        try:
            return RECORDS.validate_json(line)
        except ValidationError as error:
            raise SpecError(
                f"line {number} of {self._file.path} is no record of {SCHEMA} "
                f"({first_complaint(error).text}): {AGAIN}"
            ) from error


def _line(record: Header | Tried) -> str:
    return sealed(record.model_dump_json(by_alias=True)) + "\n"

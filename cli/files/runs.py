"""Files of measured runs: one JSON object a line; one odd record does not hide the others."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from trainplan.cli.files.disk import FileError, read_records
from trainplan.cli.terminal import remark
from trainplan.cli.words import plural
from trainplan.costmodel.base import read_json
from trainplan.costmodel.documents import MeasuredRun
from trainplan.costmodel.spec import complaints


@dataclass(frozen=True, slots=True)
class InvalidRun:
    """A record that is JSON and does not follow the schema."""

    name: str
    """Its id, or its place."""
    detail: str


def read_runs(path: Path) -> tuple[MeasuredRun | InvalidRun, ...]:
    """Every record of a file, in order; names the schema does not have are remarked on.

    Raises:
        FileError: The file cannot be read, a line is not JSON, or there is none.
    """
    lines = {
        number: _values(path, number, line)
        for number, line in enumerate(read_records(path).split("\n"), start=1)
        if line.strip()
    }
    if not lines:
        raise FileError(f"{path}: no runs: expected one JSON object a line")
    runs = tuple(_record(path, number, values) for number, values in lines.items())
    unknown = Counter(
        name
        for run, values in zip(runs, lines.values(), strict=True)
        if isinstance(run, MeasuredRun) and isinstance(values, dict)
        for name in MeasuredRun.unknown_names(values)
    )
    if unknown:
        names = ", ".join(
            f"{name} ({plural(count, 'run')})" for name, count in sorted(unknown.items())
        )
        remark(f"{path}: not in the schema of runs, so not read: {names}")
    ids = (run.name if isinstance(run, InvalidRun) else run.id for run in runs)
    twice = [name for name, count in Counter(ids).items() if count > 1]
    if twice:
        more = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
        remark(f"{path}: runs with the same id, each of which counts: {twice[0]!r}{more}")
    return runs


def _values(path: Path, number: int, line: str) -> object:
    try:
        return read_json(line)
    except json.JSONDecodeError as error:
        raise FileError(
            f"{path}:{number}:{error.colno}: not JSON: {error.msg}; write one run a line"
        ) from error
    except ValueError as error:
        raise FileError(f"{path}:{number}: {error}") from error


def _record(path: Path, number: int, values: object) -> MeasuredRun | InvalidRun:
    if not isinstance(values, dict):
        return InvalidRun(
            _name(path, number, values), "expected an object with the fields of a run"
        )
    try:
        return MeasuredRun.model_validate(values)
    except ValidationError as error:
        reasons = "; ".join(one.text for one in complaints(error))
        return InvalidRun(_name(path, number, values), reasons)


def _name(path: Path, number: int, values: object) -> str:
    name = values.get("id") if isinstance(values, dict) else None
    return name if isinstance(name, str) and name else f"{path.name}:{number}"

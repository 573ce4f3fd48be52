"""The file of published runs that the package brings, from the scored rows of docs/accuracy.md."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainplan.costmodel.catalog import published
from trainplan.costmodel.documents.constants import PublishedRun
from trainplan.costmodel.validate.steps import TimedRow
from trainplan.planner.evidence.shape import Setup, shape_of

ROOT = Path(__file__).parents[2]
FILE = ROOT / "costmodel" / "catalog" / published.NAME
RECORDS = ROOT / "examples" / "accuracy" / "runs.jsonl"
HEAD = (
    "# Written by `make accuracy` from examples/accuracy, whose README says whose figures they are;"
    "\n# facts alone: degrees, settings and step times as published, and the error of the estimate."
    "\n"
)


def evidence_text(rows: Iterable[TimedRow]) -> str:
    """Content of the file."""
    sources = _sources()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    runs = [published_run(row, sources[row.run.id]) for row in rows]
    writer.writerows(published.csv_lines(runs))
    return HEAD + text.getvalue()


def published_run(row: TimedRow, source: str) -> PublishedRun:
    """A scored row as the package brings it."""
    layout = row.prediction.layout
    assert layout
    return PublishedRun(
        id=row.run.id,
        source=source,
        model=row.run.model.name,
        global_batch_size=row.job.training.global_batch_size,
        step_time_s=row.measured_s,
        error_fraction=round(row.error_fraction, 3),
        shape=shape_of(Setup.of(row.job), layout),
    )


def _sources() -> Mapping[str, str]:
    """Repository of every record, or its paper."""
    records = (json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines())
    return {one["id"]: _source(one["source"]) for one in records}


def _source(stated: Mapping[str, str]) -> str:
    return stated.get("repo") or stated.get("paper") or stated["address"]

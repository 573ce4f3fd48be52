"""`plan validate`: predictions against measured runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from trainplan.cli.options import (
    JSON,
    PATH,
    PROFILE,
    memory_margin,
    page,
    parameters,
    report_options,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from statistics import fmean

    from trainplan.cli.blocks import show
    from trainplan.cli.documents import ValidateDocument
    from trainplan.cli.files import InvalidRun, load_measured, read_runs
    from trainplan.cli.pages import screen
    from trainplan.cli.terminal import remark, show_json, watched
    from trainplan.cli.values import ReportFile
    from trainplan.cli.words import percent, plural
    from trainplan.costmodel.base import SpecError
    from trainplan.costmodel.calibration import Measured
    from trainplan.costmodel.documents import MeasuredRun
    from trainplan.costmodel.validate import Prediction, predict, scores, timed_rows, unreadable
    from trainplan.planner.evidence import is_inside

SAME = 0.005
"""Share of the mean error below which two are the same: half of what is printed of 10 %."""


@page("validate", "plan validate runs.jsonl fits.jsonl --worst 5")
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...", type=PATH)
@click.option(
    "--strict/--all",
    "strict",
    default=True,
    help="Score only runs whose record is complete, or every run that can be priced.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Also: the error after one measured step of another layout on the same machine.",
)
@click.option(
    "--worst",
    type=parameters.IntRange(0, 1000),
    default=0,
    metavar="N",
    help="List the N runs that are most off, term by term.",
)
@PROFILE
@memory_margin(None)
@report_options
@JSON
def command(
    files: tuple[Path, ...],
    profiles: tuple[Path, ...],
    memory_margin: float | None,
    *,
    report: ReportFile,
    strict: bool,
    calibrate: bool,
    worst: int,
    as_json: bool,
) -> None:
    """Compare predictions with measured runs.

    Files hold one run a line, as JSON: what was trained, where, how it was laid out, and its step
    time, its peak memory or whether it fitted.
    """
    report.check()
    records = [record for path in files for record in read_runs(path)]
    _check(files, records)
    measured = load_measured(profiles)
    predictions = tuple(_predictions(records, measured, memory_margin))
    if profiles:
        remark(_helps(records, measured, predictions, strict=strict))
        remark(_corrected(measured, predictions))
    found = scores(
        predictions, everything=not strict, inside=lambda row: is_inside(row.job, row.layout)
    )
    document = ValidateDocument.of(predictions, found, calibrate=calibrate).json()
    if as_json:
        show_json(document)
    else:
        show(*screen(found, predictions, calibrated=calibrate, worst_runs=worst))
    report.write(document)


def _check(files: Sequence[Path], records: Sequence[MeasuredRun | InvalidRun]) -> None:
    """Is there a run at all?

    Raises:
        SpecError: No record follows the schema.
    """
    odd = [record for record in records if isinstance(record, InvalidRun)]
    if odd and len(odd) == len(records):
        raise SpecError(
            f"{files[0]}: no run to validate: mend {odd[0].name}: {odd[0].detail}"
            + (f" (and {len(odd) - 1} more)" if len(odd) > 1 else "")
        )


def _predictions(
    records: Sequence[MeasuredRun | InvalidRun], measured: Measured, memory_margin: float | None
) -> Iterator[Prediction]:
    """One for every record, in order."""
    runs = [record for record in records if isinstance(record, MeasuredRun)]
    priced = iter(predict(watched(runs, "pricing"), measured=measured, memory_margin=memory_margin))
    for record in records:
        if isinstance(record, InvalidRun):
            yield unreadable(record.name, record.detail)
        else:
            yield next(priced)


def _helps(
    records: Sequence[MeasuredRun | InvalidRun],
    measured: Measured,
    predictions: Sequence[Prediction],
    *,
    strict: bool,
) -> str:
    """Are the runs of its machine predicted better with the profile than without it?"""
    mine = [one for one in records if isinstance(one, MeasuredRun) and measured.corrects(one)]
    pairs = [
        [abs(row.error_fraction) for row in timed_rows(found, everything=not strict)]
        for found in (predict(mine), [one for one in predictions if measured.corrects(one.run)])
    ]
    if not pairs[0] or len(pairs[0]) != len(pairs[1]):
        return f"--profile: no step time of {measured.gpu} to know whether it helps"
    before, after = map(fmean, pairs)
    runs = plural(len(pairs[0]), "run")
    written = f"mean error of {runs} of {measured.gpu}, catalog -> with --profile: "
    written += f"{percent(before)} -> {percent(after)}"
    if after > before * (1 + SAME):
        return (
            f"{written}: it makes them worse. Leave it out, or fit these runs on top of it: "
            "`plan calibrate --profile`"
        )
    return f"{written}: " + ("it helps" if after < before * (1 - SAME) else "it changes little")


def _corrected(measured: Measured, predictions: Sequence[Prediction]) -> str:
    """Whom the measurements correct, and who is scored by what they were fitted on."""
    corrected = [one.run.id for one in predictions if measured.corrects(one.run)]
    runs = measured.calibration.runs if measured.calibration else ()
    fitted = {run.id for run in runs} & set(corrected)
    return (
        f"--profile corrects {len(corrected)} of {len(predictions)} runs, those on "
        f"{measured.gpu}; it was fitted on {len(fitted)} of them"
    )

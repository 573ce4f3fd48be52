"""`plan compare`: two plans side by side."""

from pathlib import Path

import click

from trainplan.cli.options import JSON, PATH, PROFILE, page, report_options
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import CompareDocument
    from trainplan.cli.files import load_measured
    from trainplan.cli.pages import screen
    from trainplan.cli.values import ReportFile, load_written, remark_change
    from trainplan.planner.cases import Case
    from trainplan.planner.comparisons import Proof, compare


@page("compare", "plan compare before.json after.json")
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
@PROFILE
@report_options
@JSON
def command(
    first: Path, second: Path, profiles: tuple[Path, ...], report: ReportFile, *, as_json: bool
) -> None:
    """Compare two plans, term by term.

    FIRST and SECOND are files written by `plan search --output`. Prints where their jobs and
    layouts differ, their seconds by term and their memory. Both are priced with the same numbers.
    """
    report.check()
    measured = load_measured(profiles)
    one, other = load_written(first), load_written(second)
    found = compare(
        Case(one.job, one.options, measured),
        one.layout,
        Case(other.job, other.options, measured),
        other.layout,
        (Proof.of(one), Proof.of(other)),
    )
    remark_change(first, one, measured)
    remark_change(second, other, measured)
    document = CompareDocument.of(found).json()
    answer(document, screen(found), as_json=as_json, found=found)
    report.write(document)

"""`plan compare`: two plans side by side."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.files.profiles import load_measured
from trainplan.cli.options.help import example
from trainplan.cli.options.shared import JSON, PROFILE
from trainplan.cli.options.written_plans import load_written, remark_change
from trainplan.cli.render.compare import compare_document, compare_page
from trainplan.cli.terminal.output import show, show_json
from trainplan.planner.questions.changes.variations import Case
from trainplan.planner.questions.compare import compare


@click.command("compare", epilog=example("plan compare before.json after.json"))
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@PROFILE
@JSON
def command(first: Path, second: Path, profiles: tuple[Path, ...], *, as_json: bool) -> None:
    """Compare two plans, term by term.

    FIRST and SECOND are files written by `plan search --output`. Prints where their jobs and
    layouts differ, their seconds by term and their memory. Both are priced with the same numbers.
    """
    measured = load_measured(profiles)
    one, other = load_written(first), load_written(second)
    found = compare(
        Case(one.job, one.options, measured),
        one.layout,
        Case(other.job, other.options, measured),
        other.layout,
    )
    remark_change(first, one.step_time_s, found.first.estimate.step_time_s)
    remark_change(second, other.step_time_s, found.second.estimate.step_time_s)
    if as_json:
        show_json(compare_document(found))
    else:
        show(*compare_page(found))

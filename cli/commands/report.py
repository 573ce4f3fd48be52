"""`plan report`: a document as a page with charts."""

from pathlib import Path

import click

from trainplan.cli.options import FORCE, PATH, PROFILE, page
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.files import (
        errors_of,
        load_measured,
        profile_of,
        read_json,
        refuse_existing,
        try_writing,
        write_text,
    )
    from trainplan.cli.pages import written
    from trainplan.cli.terminal import remark
    from trainplan.cli.trials import PLAN
    from trainplan.costmodel.profiles import Profile


@page("report", "plan report plan.json --output report.html")
@click.argument("document", type=PATH)
@click.option("--output", type=PATH, required=True, help="New file: HTML that loads nothing.")
@PROFILE
@FORCE
def command(document: Path, output: Path, profiles: tuple[Path, ...], *, force: bool) -> None:
    """Write a plan, or another answer, as one page with charts.

    DOCUMENT is a file written by `plan search --output` or `plan profile`, the folder of a
    `plan tune`, or what `plan compare`, `sweep`, `validate` or `search --pareto` printed with
    `--json`. The page works offline, in any browser, and prints well.
    """
    refuse_existing(output, force=force)
    try_writing(output)
    measured = load_measured(profiles)
    text, read = read_json(document, PLAN)  # of the folder of a `plan tune`
    read.refuse_large()
    if read.values.get("schema") == Profile.SCHEMA:
        profile_of(read)
    with errors_of(read.path):
        page = written(str(read.path), text, measured)
    write_text(output, page, force=force)
    remark(f"wrote {output}")

"""`plan report`: a document as a page with charts."""

from pathlib import Path

import click

from trainplan.cli.options import FORCE, JSON, PATH, PROFILE, page
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import FilesDocument
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
    from trainplan.cli.terminal import LISTENER, remark
    from trainplan.cli.trials import PLAN
    from trainplan.costmodel.profiles import Profile


@page("report", "plan report plan.json --output report.html")
@click.argument("document", type=PATH)
@click.option("--output", type=PATH, required=True, help="New file: HTML that loads nothing.")
@PROFILE
@FORCE
@JSON
def command(
    document: Path, output: Path, profiles: tuple[Path, ...], *, force: bool, as_json: bool
) -> None:
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
        name = str(read.path) if LISTENER.get() is None else read.path.name
        report = written(name, text, measured)
    write_text(output, report, force=force)
    remark(f"wrote {output}")
    if as_json:
        answer(FilesDocument(written=(str(output),)).json(), (f"Wrote {output}.",), as_json=True)

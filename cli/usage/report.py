"""`plan report`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import page
from trainplan.cli.options.shared import FORCE, PATH, PROFILE


@page("report", "plan report plan.json --output report.html")
@click.argument("document", type=PATH)
@click.option("--output", type=PATH, required=True, help="New file: HTML that loads nothing.")
@PROFILE
@FORCE
def command() -> None:
    """Write a plan, or another answer, as one page with charts.

    DOCUMENT is a file written by `plan search --output` or `plan profile`, the folder of a
    `plan tune`, or what `plan compare`, `sweep`, `validate` or `search --pareto` printed with
    `--json`. The page works offline, in any browser, and prints well.
    """

"""`plan compare`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import page
from trainplan.cli.options.shared import JSON, PATH, PROFILE, report_options


@page("compare", "plan compare before.json after.json")
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
@PROFILE
@report_options
@JSON
def command() -> None:
    """Compare two plans, term by term.

    FIRST and SECOND are files written by `plan search --output`. Prints where their jobs and
    layouts differ, their seconds by term and their memory. Both are priced with the same numbers.
    """

"""`plan why-not`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import page
from trainplan.cli.options.shared import JSON, PLAN, PROFILE, time_limit


@page("why-not", "plan why-not plan.json --layout tp=8,pp=4,vpp=2")
@PLAN
@click.option(
    "--layout",
    required=True,
    shell_complete=completions.LAYOUT,
    metavar="LAYOUT",
    help="As for `plan estimate`: FIELD=VALUE,..., a printed layout, or @plan.json:3.",
)
@PROFILE
@time_limit(20.0, "Look for changes that make it run until then.")
@JSON
def command() -> None:
    """Say why a layout is not the answer.

    PLAN is a file written by `plan search --output`. Prints the rule that refuses the layout, or
    the bytes it lacks, or the seconds it loses against the plan, term by term.
    """

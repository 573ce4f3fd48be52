"""`plan why-not`: its options and help page."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.options.help import example
from trainplan.cli.options.shared import JSON, PROFILE, time_limit
from trainplan.cli.terminal.lazily import call


@click.command("why-not", epilog=example("plan why-not plan.json --layout tp=8,pp=4,vpp=2"))
@click.argument("plan", type=click.Path(path_type=Path))
@click.option(
    "--layout",
    required=True,
    metavar="LAYOUT",
    help="FIELD=VALUE,... as for `plan estimate`; what is left out follows from the rest.",
)
@PROFILE
@time_limit(20.0, "Look for changes that make it run until then.")
@JSON
def command(**values: object) -> None:
    """Say why a layout is not the answer.

    PLAN is a file written by `plan search --output`. Prints the rule that refuses the layout, or
    the bytes it lacks, or the seconds it loses against the plan, term by term.
    """
    call("trainplan.cli.commands.why_not:command", **values)

"""`plan compare`: its options and help page."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.options.help import example
from trainplan.cli.options.shared import JSON, PROFILE
from trainplan.cli.terminal.lazily import call


@click.command("compare", epilog=example("plan compare before.json after.json"))
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@PROFILE
@JSON
def command(**values: object) -> None:
    """Compare two plans, term by term.

    FIRST and SECOND are files written by `plan search --output`. Prints where their jobs and
    layouts differ, their seconds by term and their memory. Both are priced with the same numbers.
    """
    call("trainplan.cli.commands.compare:command", **values)

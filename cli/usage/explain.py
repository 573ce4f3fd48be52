"""`plan explain`: its options and help page."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.options.help import example
from trainplan.cli.options.shared import JSON, PROFILE, WORKERS, time_limit
from trainplan.cli.terminal.lazily import call


@click.command("explain", epilog=example("plan explain plan.json"))
@click.argument("plan", type=click.Path(path_type=Path))
@PROFILE
@time_limit(30.0, "Price changes of the job until then; those left are said to be untried.")
@WORKERS
@JSON
def command(**values: object) -> None:
    """Say what limits a plan, what more would buy.

    PLAN is a file written by `plan search --output`. Prints where the step goes, what binds, what
    changes of the job would buy, each by a search of its own, and how sure the choice is.
    """
    call("trainplan.cli.commands.explain:command", **values)

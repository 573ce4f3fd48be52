"""`plan simulate`: its options and help page."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.options.help import example
from trainplan.cli.options.shared import CANDIDATE, PROFILE, output_options
from trainplan.cli.terminal.lazily import call


@click.command(
    "simulate", epilog=example("plan simulate plan.json --trace trace.json --csv schedule.csv")
)
@click.argument("plan", type=click.Path(path_type=Path))
@CANDIDATE
@PROFILE
@output_options()
def command(**values: object) -> None:
    """Run the schedule of a plan on a clock.

    PLAN is a file written by `plan search --output`. Prints the pipeline's makespan, its timeline
    and what every rank does; `--trace` writes every pass, message and the end of the step.
    """
    call("trainplan.cli.commands.simulate:command", **values)

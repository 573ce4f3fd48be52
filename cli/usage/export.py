"""`plan export`: its options and help page."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.options.help import example
from trainplan.cli.options.names import EXPORTERS, LAUNCHERS
from trainplan.cli.options.shared import CANDIDATE, FORCE
from trainplan.cli.terminal.lazily import call


@click.command(
    "export", epilog=example("plan export plan.json --launcher slurm --output-dir launch")
)
@click.argument("plan", type=click.Path(path_type=Path))
@CANDIDATE
@click.option(
    "--runtime",
    type=click.Choice(EXPORTERS),
    show_default="the plan's own",
    help="Training runtime whose options are written.",
)
@click.option(
    "--launcher",
    type=click.Choice(LAUNCHERS),
    default="torchrun",
    show_default=True,
    help="torchrun writes run.sh for every node, slurm writes run.sbatch.",
)
@click.option(
    "--output-dir",
    required=True,
    type=click.Path(path_type=Path),
    help="New folder for the script, what it reads, and a copy of the plan.",
)
@FORCE
def command(**values: object) -> None:
    """Write the launch script of a plan.

    PLAN is a file written by `plan search --output`. The script asks for what you alone know, such
    as the paths of data and checkpoints, in variables that this command lists.
    """
    call("trainplan.cli.commands.export:command", **values)

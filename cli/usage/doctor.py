"""`plan doctor`: its options and help page."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.options.help import example
from trainplan.cli.options.names import EXPORTERS
from trainplan.cli.terminal.lazily import call


@click.command(
    "doctor",
    epilog=example("plan doctor --runtime-path path/to/checkout", "plan doctor profile.json"),
)
@click.argument("profiles", nargs=-1, metavar="[PROFILE.json...]", type=click.Path(path_type=Path))
@click.option(
    "--runtime-path",
    type=click.Path(path_type=Path),
    help=f"A checkout of {' or '.join(EXPORTERS)}: does it know every option we write?",
)
def command(**values: object) -> None:
    """Check installation, runtime or a profile.

    Of a profile: which numbers are measured, which are fitted or assumed, and which measurement
    would shrink the error most.
    """
    call("trainplan.cli.commands.doctor:command", **values)

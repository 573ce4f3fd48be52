"""`plan doctor`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import page
from trainplan.cli.options.names import CHECKOUTS
from trainplan.cli.options.shared import PATH


@page("doctor", "plan doctor --runtime-path path/to/checkout", "plan doctor profile.json")
@click.argument("profiles", nargs=-1, metavar="[PROFILE.json...]", type=PATH)
@click.option(
    "--runtime-path",
    type=PATH,
    help=f"A checkout of {' or '.join(CHECKOUTS)}: does it know every option we write?",
)
def command() -> None:
    """Check installation, plug-ins, runtime or a profile.

    Of a profile: which numbers are measured, which are fitted or assumed, and which measurement
    would shrink the error most.
    """

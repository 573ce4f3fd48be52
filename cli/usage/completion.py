"""`plan completion`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import example
from trainplan.cli.terminal.lazily import call

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog=example('eval "$(plan completion bash)"', "# put it into ~/.bashrc to keep it"),
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(**values: object) -> None:
    """Print the completion script of a shell."""
    call("trainplan.cli.commands.completion:command", **values)

"""`plan completion`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import page
from trainplan.cli.options.one_of import OneOf

SHELLS = ("bash", "zsh", "fish")


@page("completion", 'eval "$(plan completion bash)"', "# put it into ~/.bashrc to keep it")
@click.argument("shell", type=OneOf("shell", SHELLS))
def command() -> None:
    """Print the completion script of a shell."""

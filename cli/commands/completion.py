"""`plan completion`: the script that teaches a shell our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from trainplan.cli.help import example
from trainplan.cli.main import COMPLETE, plan
from trainplan.cli.output import write

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog=example('eval "$(plan completion bash)"', "# put it into ~/.bashrc to keep it"),
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(plan, {}, "plan", COMPLETE)
    write(script.source_template % script.source_vars() + "\n")

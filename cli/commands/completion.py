"""`plan completion`: the script that teaches a shell our commands."""

import click

from trainplan.cli.options import OneOf, page
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.commands.registry import COMPLETE
    from trainplan.cli.terminal import get_completion_class, write


SHELLS = ("bash", "zsh", "fish")


@page("completion", 'eval "$(plan completion bash)"', "# put it into ~/.bashrc to keep it")
@click.argument("shell", type=OneOf("shell", SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    plan = click.get_current_context().find_root().command
    script = kind(plan, {}, "plan", COMPLETE)
    write(script.source_template % script.source_vars() + "\n")

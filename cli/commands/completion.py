"""`plan completion`: the script that teaches a shell our commands."""

from __future__ import annotations

import click

from trainplan.cli.commands import COMPLETE
from trainplan.cli.terminal.completion import get_completion_class
from trainplan.cli.terminal.output import write


def command(shell: str) -> None:
    """Print the script."""
    kind = get_completion_class(shell)
    assert kind is not None
    plan = click.get_current_context().find_root().command
    script = kind(plan, {}, "plan", COMPLETE)
    write(script.source_template % script.source_vars() + "\n")

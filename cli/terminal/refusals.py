"""What is wrong, in one line."""

from __future__ import annotations

import click

from trainplan.cli.terminal.text import escaped
from trainplan.costmodel.base import PlanError

CLICK_SAYS = (
    ("is not a valid integer range", "is no whole number"),
    ("is not a valid float range", "is no number"),
    ("is not a valid float", "is no number"),
)
LONGEST_BUG = 300
"""Characters of an error that is our own."""


def one_line(error: click.ClickException | PlanError) -> str:
    """What, where and what to do."""
    text = _usage(error) if isinstance(error, click.ClickException) else str(error)
    return escaped(" ".join(text.split()))


def bug_line(error: Exception) -> str:
    """An error of ours."""
    line = escaped(" ".join(f"{type(error).__name__}: {error}".split()))[:LONGEST_BUG]
    return f"this is a bug, please report it: {line}"


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    for theirs, ours in CLICK_SAYS:
        message = message.replace(theirs, ours)
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message} (see `{context.command_path} --help`)" if context else message

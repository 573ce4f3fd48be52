"""What is wrong, in one line."""

import click

from trainplan.cli.terminal.text import escaped
from trainplan.costmodel.base import PlanError, did_you_mean, shortened

CLICK_SAYS = (
    ("is not a valid integer range", "is no whole number"),
    ("is not a valid float range", "is no number"),
    ("is not a valid float", "is no number"),
)
LONGEST_WORD, LONGEST_LINE = 240, 2_000
"""Characters of a word, such as a path, and of a whole line that a refusal repeats."""
LONGEST_BUG = 300
"""Characters of an error that is our own."""


def one_line(error: click.ClickException | PlanError) -> str:
    """What, where and what to do; repeats no more of a long name than is needed."""
    text = _usage(error) if isinstance(error, click.ClickException) else str(error)
    words = (shortened(word, LONGEST_WORD) for word in text.split())
    return escaped(shortened(" ".join(words), LONGEST_LINE))


def bug_line(error: Exception) -> str:
    """An error of ours."""
    line = escaped(" ".join(f"{type(error).__name__}: {error}".split()))[:LONGEST_BUG]
    return f"this is a bug, please report it: {line}"


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption) and error.ctx:
        message = _no_option(error.option_name, error.ctx.command)
    for theirs, ours in CLICK_SAYS:
        message = message.replace(theirs, ours)
    if "unexpected extra argument" in message and "=" in message:
        message += ": fields of a layout are one word, such as tp=8,pp=4"
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message} (see `{context.command_path} --help`)" if context else message


def _no_option(name: str, command: click.Command) -> str:
    known = [one for each in command.params for one in each.opts if one.startswith("--")]
    intended = did_you_mean("command option", name, known)
    return f"no option {shortened(name)!r}" + (f": {intended}" if intended else "")

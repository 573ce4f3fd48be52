"""Commands that plug-ins add, and what is printed when a plug-in fails."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

import click

from trainplan.cli.commands.registry import COMMANDS
from trainplan.cli.terminal import escaped
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.plugins import declaring

if TYPE_CHECKING:
    from trainplan.costmodel.plugins import Added, Installed, PluginCommand


def say_warnings() -> None:
    """Print in a line what is left out of plug-ins, where there are any."""
    if not declaring():
        return
    from trainplan.costmodel.plugins import PluginWarning  # noqa: PLC0415 (seldom needed)

    usual = warnings.showwarning

    def say(  # noqa: PLR0917 (so Python calls it)
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, PluginWarning):
            click.echo(f"plan: {escaped(str(message))}", err=True)
        else:
            usual(message, category, filename, lineno, file, line)

    warnings.showwarning = say


@cache
def plugged() -> Mapping[str, Added[PluginCommand]]:
    """Commands by name, as plug-ins declare them; none is imported."""
    if not declaring():
        return {}
    from trainplan.costmodel.plugins import added  # noqa: PLC0415 (seldom needed)

    return added("commands", COMMANDS, lambda one: one.plugin.commands, _stated)


def _stated(_: Installed, command: PluginCommand) -> PluginCommand:
    """Its two texts are there, so that the list of commands can be printed."""
    return type(command)(command.command, command.summary)


def plugged_command(name: str) -> click.Command:
    """A command of a plug-in.

    Raises:
        UnsupportedError: It cannot be imported.
    """
    from trainplan.costmodel.plugins import imported  # noqa: PLC0415 (seldom needed)

    found = plugged()[name]
    try:
        return imported(found.value.command, click.Command)
    except (Exception, SystemExit) as error:
        raise UnsupportedError(
            f"{found.origin.who}: command {name} does not load ({type(error).__name__}: {error}): "
            "mend or uninstall it"
        ) from error


def is_of_plugin(error: Exception, debug: str) -> bool:
    """Name whose bug an error is that went through the code of a plug-in, and how to see where.

    Not where the environment variable `debug` requests the traceback itself.
    """
    if not declaring() or os.environ.get(debug):
        return False
    theirs = _plugin_in(error.__traceback__)
    if theirs is None:
        return False
    line = escaped(" ".join(f"{type(error).__name__}: {error}".split()))[:300]
    whose = f"this is a bug in {theirs.who}, please report it there"
    click.echo(f"plan: error: {whose}: {line} ({debug}=1 shows the traceback)", err=True)
    return True


def _plugin_in(traceback: TracebackType | None) -> Installed | None:
    from trainplan.costmodel.plugins import installed  # noqa: PLC0415 (seldom needed)

    modules = set()
    while traceback is not None:
        modules.add(str(traceback.tb_frame.f_globals.get("__name__")).partition(".")[0])
        traceback = traceback.tb_next
    return next((one for one in installed() if one.module.partition(".")[0] in modules), None)

"""`plan serve`: the planner for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.commands import catalog, check, compare, estimate, explain, search, why_not
from trainplan.cli.serve.calls import Limits
from trainplan.cli.terminal.lazily import call
from trainplan.costmodel.base import UnsupportedError

ANSWERING = (catalog, check, compare, estimate, explain, search, why_not)
"""Imported before calls come, so that no process of a call waits for them."""
EXTRA = "plan serve needs the public SDK of the protocol: pip install 'trainplan[serve]'"
SDK = ("mcp", "mcp_types")


def limits_of(
    *, time_limit: float, max_time_limit: float, calls: int, max_input: int, max_output: int
) -> Limits:
    """What a call may take."""
    return Limits(min(time_limit, max_time_limit), max_time_limit, calls, max_input, max_output)


def command(
    limits: Limits, readable: tuple[Path, ...], workers: int | None, *, stdio: bool
) -> None:
    """Serve until the client has gone."""
    if not stdio:
        raise click.UsageError("say how to be reached: --stdio is the one way there is")
    for folder in readable:
        if not folder.is_dir():
            raise click.UsageError(f"--allow-files {folder}: no such folder")
    folders = tuple(folder.resolve() for folder in readable)
    try:
        call(
            "trainplan.cli.serve.server:run",
            limits=limits,
            readable=folders,
            workers=workers,
        )
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in SDK:
            raise
        raise UnsupportedError(EXTRA) from None

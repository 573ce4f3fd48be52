"""`plan serve`: the planner for other programs."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from trainplan.cli.options import PATH, WORKERS, gathered, page, parameters
from trainplan.cli.terminal import imported_on_answer, named

with imported_on_answer():
    from trainplan.cli.commands import COMMANDS
    from trainplan.cli.serve import TOOLS, Limits
    from trainplan.costmodel.base import UnsupportedError

EXTRA = "plan serve needs the public SDK of the protocol: pip install 'trainplan[serve]'"
SDK = ("mcp", "mcp_types", "anyio")


def limits_of(
    *, time_limit: float, max_time_limit: float, calls: int, max_input: int, max_output: int
) -> Limits:
    """What a call may take."""
    return Limits(min(time_limit, max_time_limit), max_time_limit, calls, max_input, max_output)


Stated = Callable[..., None]


def _seconds(name: str, default: float, text: str) -> Callable[[Stated], Stated]:
    """An option of seconds above zero."""
    return click.option(
        name,
        type=parameters.Seconds(0, min_open=True),
        default=default,
        metavar="SECONDS",
        help=text,
    )


limit_options = gathered(
    "limits",
    "limits_of",
    (
        _seconds("--time-limit", 30.0, "Of a call that states none."),
        _seconds("--max-time-limit", 600.0, "The most that a call may state."),
        click.option(
            "--calls",
            type=parameters.IntRange(1, 64),
            default=2,
            help="Calls at the same time; others wait.",
        ),
        click.option(
            "--max-input",
            callback=parameters.byte_count,
            default="4MB",
            metavar="SIZE",
            help="The most that a call may send.",
        ),
        click.option(
            "--max-output",
            callback=parameters.byte_count,
            default="64KB",
            metavar="SIZE",
            help="The most of a document that is answered; the rest is cut, with a note.",
        ),
    ),
)


@page("serve", "claude mcp add trainplan -- plan serve --stdio")
@click.option("--stdio", is_flag=True, help="Serve over stdin and stdout.")
@limit_options
@click.option(
    "--allow-files",
    "readable",
    type=PATH,
    multiple=True,
    metavar="FOLDER",
    help="Clients may also name files in here. Without it no file of yours is read.",
)
@click.option(
    "--write-files",
    "writable",
    type=PATH,
    metavar="FOLDER",
    help="Clients may have reports and launch files made in here, under new names. Without it "
    "nothing is written.",
)
@WORKERS
def command(
    limits: Limits,
    readable: tuple[Path, ...],
    writable: Path | None,
    workers: int | None,
    *,
    stdio: bool,
) -> None:
    """Answer other programs, as a server of the Model Context Protocol.

    Tools: search, estimate, check, explain, why_not, compare, sweep, replan, export,
    report, catalog.
    Answers are the documents that `plan X --json` prints. Nothing is executed.
    """
    if not stdio:
        raise click.UsageError("give a transport: --stdio is the only one")
    if sys.stdin is None or sys.stdout is None:
        raise click.UsageError("--stdio: standard input or output is closed: open both")
    allowed = {"--allow-files": readable, "--write-files": (writable,) if writable else ()}
    for option, folders in allowed.items():
        for folder in folders:
            if not folder.is_dir():
                raise click.UsageError(f"{option} {folder}: no such folder")
    read, write = (tuple(folder.resolve() for folder in one) for one in allowed.values())
    for one in TOOLS.values():  # before calls come, so that no process of a call waits for it
        named(f"trainplan.cli.commands.{COMMANDS[one.command].module}:command")
    try:
        named("trainplan.cli.serve.server:run")(
            limits=limits, readable=read, writable=next(iter(write), None), workers=workers
        )
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in SDK:
            raise
        raise UnsupportedError(EXTRA) from None

"""`plan serve`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import gathered, page
from trainplan.cli.options.parameters import byte_count, finite
from trainplan.cli.options.shared import PATH, WORKERS

limit_options = gathered(
    "limits",
    "limits_of",
    (
        click.option(
            "--time-limit",
            type=click.FloatRange(0, min_open=True),
            callback=finite,
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help="Of a call that states none.",
        ),
        click.option(
            "--max-time-limit",
            type=click.FloatRange(0, min_open=True),
            callback=finite,
            default=600.0,
            show_default=True,
            metavar="SECONDS",
            help="The most that a call may state.",
        ),
        click.option(
            "--calls",
            type=click.IntRange(1, 64),
            default=2,
            show_default=True,
            help="Calls at the same time; others wait.",
        ),
        click.option(
            "--max-input",
            callback=byte_count,
            default="4MB",
            show_default=True,
            metavar="SIZE",
            help="The most that a call may ask with.",
        ),
        click.option(
            "--max-output",
            callback=byte_count,
            default="64KB",
            show_default=True,
            metavar="SIZE",
            help="The most of a document that is answered; the rest is cut, and said to be.",
        ),
    ),
)


@page("serve", "claude mcp add trainplan -- plan serve --stdio")
@click.option("--stdio", is_flag=True, help="Speak over stdin and stdout.")
@limit_options
@click.option(
    "--allow-files",
    "readable",
    type=PATH,
    multiple=True,
    metavar="FOLDER",
    help="Clients may also name files in here. Without it no file of yours is read.",
)
@WORKERS
def command() -> None:
    """Answer other programs, as a server of the Model Context Protocol.

    Tools: search, estimate, check, explain, why_not, compare, catalog. Answers are the documents
    that `plan X --json` prints. Nothing is executed and nothing is written.
    """

"""`plan schema`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import page


@page("schema", "plan schema plan > plan.schema.json")
@click.argument("document", required=False)
def command() -> None:
    """Print the JSON Schema of a document.

    Without DOCUMENT, the names of all: what commands print with --json, and files they read. New
    keys may come within a version; none is renamed or removed.
    """

"""`plan schema`: its options and help page."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from trainplan.cli.options.help import page
from trainplan.cli.options.names import DOCUMENTS


def _begun(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names that begin so, for the shell."""
    return [CompletionItem(name) for name in DOCUMENTS if name.startswith(incomplete)]


@page("schema", "plan schema plan > plan.schema.json")
@click.argument("document", required=False, shell_complete=_begun)
def command() -> None:
    """Print the JSON Schema of a document.

    Without DOCUMENT, the names of all: what commands print with --json, and files they read. New
    keys may come within a version; none is renamed or removed.
    """

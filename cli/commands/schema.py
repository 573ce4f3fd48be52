"""`plan schema`: the form of every document."""

import click

from trainplan.cli.options import completions, names, page
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import show, table
    from trainplan.cli.documents import DOCUMENTS, document_schema
    from trainplan.cli.terminal import show_json
    from trainplan.costmodel.base import unknown_name


@page("schema", "plan schema plan > plan.schema.json")
@click.argument("document", required=False, shell_complete=completions.names(names.DOCUMENTS))
def command(document: str | None) -> None:
    """Print the JSON Schema of a document.

    Without DOCUMENT, the names of all: what commands print with --json, and files they read. New
    keys may come within a version; none is renamed or removed.
    """
    if document is None:
        rows = ((name, entry.says) for name, entry in DOCUMENTS.items())
        show(table("", ("document", "what it is"), rows))
    elif document in DOCUMENTS:
        show_json(document_schema(document))
    else:
        raise unknown_name("document", document[:60], DOCUMENTS, "`plan schema` lists them all")

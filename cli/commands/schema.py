"""`plan schema`: the form of every document."""

from __future__ import annotations

from trainplan.cli.blocks.screen import Words, grid
from trainplan.cli.schemas.documents import DOCUMENTS, document_schema
from trainplan.cli.terminal.output import show, show_json
from trainplan.costmodel.base import unknown_name


def command(document: str | None) -> None:
    """Print the names of all documents, or the schema of one."""
    if document is None:
        heads = (Words("document"), Words("what it is"))
        show(grid(heads, ((name, entry.says) for name, entry in DOCUMENTS.items())))
    elif document in DOCUMENTS:
        show_json(document_schema(document))
    else:
        raise unknown_name("document", document[:60], DOCUMENTS, "`plan schema` lists them all")

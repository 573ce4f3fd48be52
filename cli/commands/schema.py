"""`plan schema`: the form of every document."""

import click

from trainplan.cli.options import JSON, completions, names, page
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer, table
    from trainplan.cli.documents import DOCUMENTS, document_schema
    from trainplan.cli.serve import TOOLS
    from trainplan.costmodel.base import unknown_name


@page("schema", "plan schema plan > plan.schema.json")
@click.argument("document", required=False, shell_complete=completions.names(names.DOCUMENTS))
@JSON
def command(document: str | None, *, as_json: bool) -> None:
    """Print the JSON Schema of a document.

    Without DOCUMENT, the names of all: what commands print with --json, files they read, and what
    tools of `plan serve` take. New keys may come within a version; none is renamed or removed.
    """
    requests = {f"{tool.command}-request": tool for tool in TOOLS.values()}
    rows = {name: entry.says for name, entry in DOCUMENTS.items()}
    rows |= {
        name: f"what `plan serve` takes for plan {tool.command}" for name, tool in requests.items()
    }
    if document is None:
        page = table("", ("document", "what it is"), rows.items())
        answer({"documents": rows}, [page], as_json=as_json)
    elif document in rows:
        tool = requests.get(document)
        found = tool.request.full() if tool else document_schema(document)
        answer(found, [f"The form of {document}: {rows[document]}."], as_json=True)
    else:
        raise unknown_name("document", document[:60], rows, "`plan schema` lists them all")

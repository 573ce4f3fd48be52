"""Runs examples/notebook.ipynb and stores what its cells print.

python docs/generator/notebook.py            write it
python docs/generator/notebook.py --check    list cells that print something else, exit code 1 then
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FILE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
NUMBER = re.compile(r"\d+(?:\.\d+)?")
MOVES = 0.02
"""Share by which a number may differ: that of another machine, or of a constant fitted anew."""
MOST_SECONDS = 300


def executed(book: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with what its cells print now, but for progress, which a slow machine has."""
    again = nbformat.from_dict(book)
    folder = {"metadata": {"path": str(FILE.parent)}}
    settings = {"timeout": MOST_SECONDS, "kernel_name": "python3", "record_timing": False}
    NotebookClient(again, resources=folder, **settings).execute()
    for cell in again.cells:
        if outputs := cell.get("outputs"):
            cell.outputs = [one for one in outputs if one.get("name") != "stderr"]
    again.metadata = book.metadata  # without the version of this Python
    return again


def shown(cell: nbformat.NotebookNode) -> tuple[str, frozenset[str]]:
    """The text that a cell printed, and the kinds of what it displayed."""
    outputs = cell.get("outputs", [])
    kinds = (kind for output in outputs for kind in output.get("data", {}))
    return "".join(output.get("text", "") for output in outputs), frozenset(kinds)


def alike(stored: str, now: str) -> bool:
    """Are two texts equal, but for a small part of their numbers?"""
    pairs = zip(NUMBER.findall(stored), NUMBER.findall(now), strict=False)
    return NUMBER.split(stored) == NUMBER.split(now) and all(
        math.isclose(float(one), float(other), rel_tol=MOVES, abs_tol=0.1) for one, other in pairs
    )


def complaints(stored: nbformat.NotebookNode, now: nbformat.NotebookNode) -> Iterator[str]:
    """Cells that print something else than what is stored."""
    for number, (one, other) in enumerate(zip(stored.cells, now.cells, strict=True)):
        (text, kinds), (text_now, kinds_now) = shown(one), shown(other)
        if kinds != kinds_now or not alike(text, text_now):
            yield f"cell {number} prints other than stored (`make docs`): {text_now or kinds_now}"


def main(arguments: Sequence[str]) -> int:
    """Write the notebook, or check it."""
    stored = nbformat.read(FILE, as_version=4)
    now = executed(stored)
    if "--check" not in arguments:
        FILE.write_text(nbformat.writes(now) + "\n", encoding="utf-8")
        return 0
    found = list(complaints(stored, now))
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Pieces that generated pages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

Lines = Iterator[str]

QUESTIONS: Sequence[tuple[str, str]] = (
    ("## plan search --pareto --json", "pareto"),
    ("## plan explain --json", "explain"),
    ("### shadow_prices[]", "shadow_price"),
    ("### robustness.rivals[]", "rival"),
    ("## plan why-not --json", "why_not"),
    ("## plan compare --json", "compare"),
    ("## plan sweep --json", "sweep"),
    ("### curves[].points[]", "sweep_point"),
)
"""Headings of the documents about plans."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    """A Markdown table."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(_cell(text) for text in row) + " |"
    yield ""


def _cell(text: str) -> str:
    linked = re.sub(r"(?<![<\w(])https?://[^\s,;)]+", r"<\g<0>>", text)
    return " ".join(linked.split()).replace("|", "\\|")

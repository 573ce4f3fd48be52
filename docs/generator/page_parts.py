"""Pieces that generated pages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from trainplan.cli.documents.compared import CompareDocument, WhyNotDocument
from trainplan.cli.documents.explain import ExplainDocument, Rival
from trainplan.cli.documents.replan import ReplanDocument
from trainplan.cli.documents.sweep import SweepDocument, SweepPoint
from trainplan.planner.comparisons.offered import OffersDocument
from trainplan.planner.explanations.shadow_prices import ShadowPrice
from trainplan.planner.goals.fronts import ParetoDocument

Lines = Iterator[str]

QUESTIONS: Sequence[tuple[str, type]] = (
    ("## plan search --pareto --json", ParetoDocument),
    ("## plan explain --json", ExplainDocument),
    ("### shadow_prices[]", ShadowPrice),
    ("### robustness.rivals[]", Rival),
    ("## plan why-not --json", WhyNotDocument),
    ("## plan compare --json", CompareDocument),
    ("## plan replan --json", ReplanDocument),
    ("## plan search --offers --json", OffersDocument),
    ("## plan sweep --json", SweepDocument),
    ("### curves[].points[]", SweepPoint),
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

"""What `plan doctor` has checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType

from trainplan.cli.blocks.blocks import Cell
from trainplan.cli.blocks.screen import drawn
from trainplan.cli.blocks.tables import table


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    name: str
    good: bool
    detail: str


def findings_page(findings: Sequence[Finding]) -> RenderableType:
    """A row for each."""
    good, bad = Cell("ok", tone="good"), Cell("MISSING", tone="bad")
    rows = ((good if one.good else bad, one.name, one.detail) for one in findings)
    return drawn(table("", ("", "check", "finding"), rows))

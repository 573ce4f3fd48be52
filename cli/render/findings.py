"""What `plan doctor` has checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from trainplan.cli.blocks.screen import Words, grid


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    name: str
    good: bool
    detail: str


def findings_page(findings: Sequence[Finding]) -> RenderableType:
    """A row for each."""
    head = (Words(""), Words("check"), Words("finding"))
    return grid(head, ((_mark(one), one.name, one.detail) for one in findings))


def _mark(finding: Finding) -> Text:
    return Text("ok", style="green") if finding.good else Text("MISSING", style="bold red")

"""What `plan doctor` has checked."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainplan.cli.blocks import Cell, Table, table


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    name: str
    good: bool
    detail: str


def findings_page(findings: Sequence[Finding]) -> Table:
    """A row for each."""
    good, bad = Cell("ok", tone="good"), Cell("MISSING", tone="bad")
    rows = ((good if one.good else bad, one.name, one.detail) for one in findings)
    return table("", ("", "check", "finding"), rows)

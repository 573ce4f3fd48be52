"""What limits the answer, as far as it is known without asking again."""

from __future__ import annotations

import shlex

from trainplan.cli.blocks import Code, Paragraph, Section
from trainplan.cli.pages.plan import binding_text
from trainplan.planner.plan import Plan


def limits_section(plan: Plan, name: str) -> Section:
    """Largest cost and memory; what more of the machine would save takes `plan explain`."""
    lines = binding_text(plan).split("\n")
    asks = (
        "What more memory, bandwidth or FLOPs would save, and which change of the job pays, takes "
        "searches of their own:"
    )
    command = Code("Ask", f"plan explain {shlex.quote(name)}")
    paragraphs = (Paragraph(text) for text in (*lines, asks))
    return Section("limits", "What limits it", (*paragraphs, command))

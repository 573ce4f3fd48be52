"""What would make a layout run, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import RenderableType

from trainplan.cli.render.parts.differences import change_text, field_json
from trainplan.cli.render.parts.grid import Words, grid
from trainplan.cli.render.parts.text import gib, seconds_like
from trainplan.costmodel.spec import Layout
from trainplan.planner.questions.compare import Side
from trainplan.planner.questions.remedies import Remedy


def remedies_part(remedies: Sequence[Remedy], layout: Layout, beside: Side) -> RenderableType:
    """Each change with its step and its memory; steps are written like that of `beside`."""
    if not remedies:
        return "Nothing that keeps its tp makes it run."
    step = beside.estimate.step_time_s
    columns = (Words("It runs with"), "step", "GiB")
    rows = (
        (
            change_text(remedy.candidate.layout, layout, beside.job.model),
            seconds_like(remedy.candidate.estimate.step_time_s, step),
            gib(remedy.candidate.estimate.memory.peak_reserved_bytes),
        )
        for remedy in remedies
    )
    return grid(columns, rows)


def remedies_json(remedies: Sequence[Remedy]) -> list[Mapping[str, object]]:
    """As a public document has them."""
    return [_remedy_json(remedy) for remedy in remedies]


def _remedy_json(remedy: Remedy) -> Mapping[str, object]:
    estimate = remedy.candidate.estimate
    return {
        "changes": [field_json(change) for change in remedy.changes],
        "step_time_s": estimate.step_time_s,
        "peak_reserved_bytes": estimate.memory.peak_reserved_bytes,
        "layout": remedy.candidate.layout.model_dump(mode="json"),
    }

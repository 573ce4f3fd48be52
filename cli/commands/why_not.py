"""`plan why-not`: what a layout lacks against a plan's."""

from __future__ import annotations

from pathlib import Path

from trainplan.cli.files.disk import errors_of
from trainplan.cli.files.profiles import load_measured
from trainplan.cli.options.layout_text import parse_layout
from trainplan.cli.options.written_plans import load_written, remark_change
from trainplan.cli.render.why_not import why_not_document, why_not_page
from trainplan.cli.terminal.clock import Clock
from trainplan.cli.terminal.output import answer
from trainplan.planner.questions.changes.variations import Case
from trainplan.planner.questions.why_not import why_not


def command(
    plan: Path, layout: str, profiles: tuple[Path, ...], time_limit: float, *, as_json: bool
) -> None:
    """Print what a layout lacks."""
    measured = load_measured(profiles)
    found = load_written(plan)
    asked = parse_layout(layout, found.job.cluster)
    with errors_of(plan), Clock(time_limit) as clock:
        reasons = why_not(Case(found.job, found.options, measured), found, asked, clock)
    remark_change(plan, found.step_time_s, reasons.best.estimate.step_time_s)
    answer(why_not_document(reasons), why_not_page(reasons), as_json=as_json)

"""`plan sweep`: the best plan at every point of a knob."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.files.profiles import load_measured
from trainplan.cli.files.reports import ReportFile
from trainplan.cli.options.layout_text import spelled_out
from trainplan.cli.options.written_plans import load_written, remark_objective
from trainplan.cli.render.sweep import sweep_document, sweep_page
from trainplan.cli.terminal.clock import Clock
from trainplan.cli.terminal.output import show, show_json
from trainplan.cli.terminal.processes import Processes
from trainplan.planner.questions.changes.parameters import parse_varied
from trainplan.planner.questions.changes.variations import Case
from trainplan.planner.questions.sweep import sweep

NO_PLAN = 2
"""Exit code: no point has a plan."""


def command(
    plan: Path,
    vary: tuple[str, ...],
    profiles: tuple[Path, ...],
    time_limit: float,
    workers: int | None,
    *,
    report: ReportFile,
    weak: bool,
    as_json: bool,
) -> None:
    """Print the best plan of every point."""
    report.check()
    varied = [parse_varied(spelled_out(text)) for text in vary]
    measured = load_measured(profiles)
    found = load_written(plan)
    case = Case(found.job, found.options, measured).near(found.layout)
    with Clock(time_limit) as clock, Processes(workers) as processes:
        swept = sweep(case, varied, clock, processes, weak=weak)
    remark_objective(plan, found)
    document = sweep_document(found.job, swept)
    if as_json:
        show_json(document)
    else:
        show(*sweep_page(found.job, swept))
    report.write(document)
    if not any(point.tokens_per_s for curve in swept.curves for point in curve.points):
        click.get_current_context().exit(NO_PLAN)

"""`plan explain`: why a plan is as fast as it is, and what would make it faster."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.files.profiles import load_measured
from trainplan.cli.options.help import example
from trainplan.cli.options.shared import JSON, PROFILE
from trainplan.cli.options.written_plans import (
    load_written,
    remark_change,
    remark_objective,
    time_limit,
)
from trainplan.cli.render.explain import explain_document, explain_page
from trainplan.cli.terminal.clock import Clock
from trainplan.cli.terminal.output import show, show_json
from trainplan.cli.terminal.processes import WORKERS, Processes
from trainplan.costmodel.base.errors import PlanError
from trainplan.planner.questions.changes.variations import Case
from trainplan.planner.questions.explain import explain


@click.command("explain", epilog=example("plan explain plan.json"))
@click.argument("plan", type=click.Path(path_type=Path))
@PROFILE
@time_limit(30.0, "Price changes of the job until then; those left are said to be untried.")
@WORKERS
@JSON
def command(
    plan: Path,
    profiles: tuple[Path, ...],
    time_limit: float,
    workers: int | None,
    *,
    as_json: bool,
) -> None:
    """Say what limits a plan, what more would buy.

    PLAN is a file written by `plan search --output`. Prints where the step goes, what binds, what
    changes of the job would buy, each by a search of its own, and how sure the choice is.
    """
    measured = load_measured(profiles)
    found = load_written(plan)
    case = Case(found.job, found.options, measured)
    try:
        with Clock(time_limit) as clock, Processes(workers) as processes:
            explanation = explain(case, found.layout, found.candidates, clock, processes)
    except PlanError as error:
        raise type(error)(f"{plan}: {error}") from error
    remark_objective(plan, found)
    remark_change(plan, found.step_time_s, explanation.estimate.step_time_s)
    if as_json:
        show_json(explain_document(explanation))
    else:
        show(*explain_page(explanation))

"""`plan why-not`: what a layout lacks against a plan's."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.files.profiles import load_measured
from trainplan.cli.options.help import example
from trainplan.cli.options.layout_text import parse_layout
from trainplan.cli.options.shared import JSON, PROFILE
from trainplan.cli.options.written_plans import load_written, remark_change, time_limit
from trainplan.cli.render.why_not import why_not_document, why_not_page
from trainplan.cli.terminal.clock import Clock
from trainplan.cli.terminal.output import show, show_json
from trainplan.costmodel.base.errors import PlanError
from trainplan.planner.questions.changes.variations import Case
from trainplan.planner.questions.why_not import why_not


@click.command("why-not", epilog=example("plan why-not plan.json --layout tp=8,pp=4,vpp=2"))
@click.argument("plan", type=click.Path(path_type=Path))
@click.option(
    "--layout",
    required=True,
    metavar="LAYOUT",
    help="FIELD=VALUE,... as for `plan estimate`; what is left out follows from the rest.",
)
@PROFILE
@time_limit(20.0, "Look for changes that make it run until then.")
@JSON
def command(
    plan: Path, layout: str, profiles: tuple[Path, ...], time_limit: float, *, as_json: bool
) -> None:
    """Say why a layout is not the answer.

    PLAN is a file written by `plan search --output`. Prints the rule that refuses the layout, or
    the bytes it lacks, or the seconds it loses against the plan, term by term.
    """
    measured = load_measured(profiles)
    found = load_written(plan)
    asked = parse_layout(layout, found.job.cluster)
    try:
        with Clock(time_limit) as clock:
            answer = why_not(Case(found.job, found.options, measured), found, asked, clock)
    except PlanError as error:
        raise type(error)(f"{plan}: {error}") from error
    remark_change(plan, found.step_time_s, answer.best.estimate.step_time_s)
    if as_json:
        show_json(why_not_document(answer))
    else:
        show(*why_not_page(answer))

"""`plan why-not`: what a layout lacks against a plan's."""

from pathlib import Path

import click

from trainplan.cli.options import JSON, PLAN, PROFILE, completions, page, time_limit
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import WhyNotDocument
    from trainplan.cli.files import errors_of, load_measured
    from trainplan.cli.pages import screen
    from trainplan.cli.terminal import Clock
    from trainplan.cli.values import load_written, parse_layout, remark_change
    from trainplan.planner.cases import Case
    from trainplan.planner.comparisons import why_not


@page("why-not", "plan why-not plan.json --layout tp=8,pp=4,vpp=2")
@PLAN
@click.option(
    "--layout",
    required=True,
    shell_complete=completions.LAYOUT,
    metavar="LAYOUT",
    help="As for `plan estimate`: FIELD=VALUE,..., a printed layout, or @plan.json:3.",
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
    request = parse_layout(layout, found.job.cluster)
    with errors_of(plan), Clock(time_limit) as clock:
        reasons = why_not(Case(found.job, found.options, measured), found, request, clock)
    remark_change(plan, found.step_time_s, reasons.best.estimate.step_time_s)
    answer(WhyNotDocument.of(reasons).json(), screen(reasons), as_json=as_json)

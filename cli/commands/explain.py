"""`plan explain`: why a plan is as fast as it is, and what would make it faster."""

from pathlib import Path

import click

from trainplan.cli.options import FORCE, JSON, PATH, PLAN, PROFILE, WORKERS, page, time_limit
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import ExplainDocument
    from trainplan.cli.files import errors_of, load_measured, refuse_existing, write_text
    from trainplan.cli.pages import screen
    from trainplan.cli.processes import Processes
    from trainplan.cli.terminal import Clock, remark
    from trainplan.cli.values import load_written, remark_change, remark_objective
    from trainplan.costmodel.base import SpecError
    from trainplan.planner.cases import Case
    from trainplan.planner.explanations import explain, places_experts


@page("explain", "plan explain plan.json")
@PLAN
@PROFILE
@time_limit(30.0, "Price changes of the job until then; those left are listed as untried.")
@WORKERS
@click.option(
    "--placement",
    type=PATH,
    metavar="FILE",
    help="Also write where experts should lie: a line for each layer, with the expert in each slot "
    "of the expert ranks (CSV).",
)
@FORCE
@JSON
def command(
    plan: Path,
    profiles: tuple[Path, ...],
    time_limit: float,
    workers: int | None,
    placement: Path | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Name what limits a plan, what more would buy.

    PLAN is a file written by `plan search --output`. Prints where the step goes, what binds, what
    changes of the job would buy, each by a search of its own, and how sure the choice is.
    """
    if placement is not None:
        refuse_existing(placement, force=force)
    measured = load_measured(profiles)
    found = load_written(plan)
    if placement is not None and not places_experts(found.job, found.layout):
        raise SpecError(
            "--placement: the plan does not know which experts are popular, or has them on one "
            "rank: plan with --option routing=FILE and ep > 1, or leave it out"
        )
    case = Case(found.job, found.options, measured)
    with errors_of(plan), Clock(time_limit) as clock, Processes(workers) as processes:
        explanation = explain(case, found.layout, found.candidates, clock, processes)
    if placement is not None and explanation.placement is not None:
        write_text(placement, explanation.placement.lines, force=force)
        remark(f"wrote {placement}")
    remark_objective(plan, found)
    remark_change(plan, found, measured)
    document = ExplainDocument.of(explanation).json()
    answer(document, screen(explanation), as_json=as_json, found=explanation)

"""`plan sweep`: the best plan at every point of a knob."""

from pathlib import Path

import click

from trainplan.cli.options import (
    JSON,
    PLAN,
    PROFILE,
    WORKERS,
    completions,
    names,
    page,
    report_options,
    time_limit,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import SweepDocument
    from trainplan.cli.files import load_measured
    from trainplan.cli.pages import screen
    from trainplan.cli.processes import Processes
    from trainplan.cli.terminal import Clock
    from trainplan.cli.values import ReportFile, load_written, remark_objective, spelled_out
    from trainplan.planner.cases import Case
    from trainplan.planner.comparisons import parse_varied, sweep

NO_PLAN = 2
"""Exit code: no point has a plan."""


@page(
    "sweep",
    "plan sweep plan.json --vary gpus=64..4096",
    "plan sweep plan.json --vary nic=1..8 --vary memory_gib=40,80",
)
@PLAN
@click.option(
    "--vary",
    multiple=True,
    required=True,
    metavar="KNOB=VALUES",
    shell_complete=completions.pairs(completions.VARIED),
    help="gpus=64..4096 doubles, gpus=64,96,128 lists. Knobs: "
    f"{', '.join(names.KNOBS)} (nic multiplies), and the fields of --fix, such as tp=1,2,4. The "
    "first is the curve; more give one curve for each of their values.",
)
@click.option("--weak", is_flag=True, help="Grow the batch with the GPUs: weak scaling.")
@PROFILE
@time_limit(120.0, "Search points until then; those left are listed as untried.")
@WORKERS
@report_options
@JSON
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
    """Vary the job of a plan; search every point.

    PLAN is a file written by `plan search --output`; its model, batch, memory margin and choices
    hold. Prints the best layout of each point, its speed and the scaling efficiency.
    """
    report.check()
    varied = [parse_varied(spelled_out(text)) for text in vary]
    measured = load_measured(profiles)
    found = load_written(plan)
    case = Case(found.job, found.options, measured).near(found.layout)
    with Clock(time_limit) as clock, Processes(workers) as processes:
        swept = sweep(case, varied, clock, processes, weak=weak)
    remark_objective(plan, found)
    document = SweepDocument.of(found.job, swept).json()
    answer(document, screen(swept, found.job), as_json=as_json, found=swept)
    report.write(document)
    if not any(point.tokens_per_s for curve in swept.curves for point in curve.points):
        click.get_current_context().exit(NO_PLAN)

"""`plan simulate`: the schedule of a plan, op by op."""

from pathlib import Path

from trainplan.cli.options import CANDIDATE, PLAN, PROFILE, output_options, page
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import show
    from trainplan.cli.documents import SimulateDocument
    from trainplan.cli.files import errors_of, load_measured, read_json
    from trainplan.cli.pages import screen, step_end
    from trainplan.cli.terminal import page_width, show_json
    from trainplan.cli.values import Outputs, remark_change
    from trainplan.planner.documents import with_candidate, written
    from trainplan.planner.questions import simulate


@page("simulate", "plan simulate plan.json --trace trace.json --csv schedule.csv")
@PLAN
@CANDIDATE
@PROFILE
@output_options()
def command(
    plan: Path, candidate: int | None, profiles: tuple[Path, ...], outputs: Outputs
) -> None:
    """Run the schedule of a plan on a clock.

    PLAN is a file written by `plan search --output`. Prints the pipeline's makespan, its timeline
    and what every rank does; `--trace` writes every pass, message and the end of the step.
    """
    outputs.check()
    measured = load_measured(profiles)
    text, _ = read_json(plan)
    with errors_of(plan):
        if candidate is not None:
            text = with_candidate(text, candidate)
        found = written(text)
        simulation = simulate(found.job, found.layout, measured)
    remark_change(plan, found, measured)
    outputs.write(simulation.scored.timeline, step_end(simulation))
    if outputs.as_json:
        show_json(SimulateDocument.of(simulation).json())
    else:
        width = max(page_width(), outputs.width or 0)
        show(*screen(simulation, outputs.width), width=width)

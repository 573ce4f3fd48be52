"""`plan simulate`: the schedule of a plan, op by op."""

from __future__ import annotations

from pathlib import Path

from trainplan.cli.files.disk import errors_of
from trainplan.cli.files.documents import read_json
from trainplan.cli.files.profiles import load_measured
from trainplan.cli.options.schedule_outputs import Outputs
from trainplan.cli.options.written_plans import remark_change
from trainplan.cli.render.simulation import simulation_json, simulation_page, step_end
from trainplan.cli.terminal.output import page_width, show, show_json
from trainplan.planner.plan.plan import chosen_from_json
from trainplan.planner.plan.written import with_candidate, written_step_time
from trainplan.planner.questions.simulate import simulate


def command(
    plan: Path, candidate: int | None, profiles: tuple[Path, ...], outputs: Outputs
) -> None:
    """Print the schedule of a plan on the clock."""
    outputs.check()
    measured = load_measured(profiles)
    text, _ = read_json(plan)
    with errors_of(plan):
        if candidate is not None:
            text = with_candidate(text, candidate)
        simulation = simulate(*chosen_from_json(text), measured)
    remark_change("the plan", written_step_time(text), simulation.step_time_s)
    outputs.write(simulation.scored.timeline, step_end(simulation))
    if outputs.as_json:
        show_json(simulation_json(simulation))
    else:
        width = max(page_width(), outputs.width or 0)
        show(*simulation_page(simulation, outputs.width), width=width)

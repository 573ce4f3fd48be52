"""`plan simulate`: the schedule of a plan, op by op."""

from __future__ import annotations

from pathlib import Path

import click

from cli.documents import read_json
from cli.help import example
from cli.options import CANDIDATE, PROFILE
from cli.output import remark, show, show_json
from cli.profiles import load_measured
from cli.render.simulation import simulation_json, simulation_page, step_end
from cli.schedule_outputs import Outputs, output_options
from costmodel.errors import PlanError
from planner.candidates import with_candidate, written_step_time
from planner.plan import chosen_from_json
from planner.simulation import Simulation, simulate

NOTICED = 1e-6
"""Relative difference of two step times that is more than rounding."""


@click.command(
    "simulate", epilog=example("plan simulate plan.json --trace trace.json --csv schedule.csv")
)
@click.argument("plan", type=click.Path(path_type=Path))
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
    try:
        if candidate is not None:
            text = with_candidate(text, candidate)
        simulation = simulate(*chosen_from_json(text), measured)
    except PlanError as error:
        raise type(error)(f"{plan}: {error}") from error
    _remark_change(simulation, written_step_time(text))
    outputs.write(simulation.scored.timeline, step_end(simulation))
    if outputs.as_json:
        show_json(simulation_json(simulation))
    else:
        show(*simulation_page(simulation, outputs.width), width=max(100, outputs.width))


def _remark_change(simulation: Simulation, written: float) -> None:
    """Say so if the plan was made with other numbers."""
    if abs(written / simulation.step_time_s - 1) > NOTICED:
        remark(
            f"the plan says {written:.4g} s a step, this version {simulation.step_time_s:.4g} s: "
            "give the --profile it was made with, or make it anew"
        )

"""`plan simulate`: its options and help page."""

from __future__ import annotations

from trainplan.cli.options.help import page
from trainplan.cli.options.shared import CANDIDATE, PLAN, PROFILE, output_options


@page("simulate", "plan simulate plan.json --trace trace.json --csv schedule.csv")
@PLAN
@CANDIDATE
@PROFILE
@output_options()
def command() -> None:
    """Run the schedule of a plan on a clock.

    PLAN is a file written by `plan search --output`. Prints the pipeline's makespan, its timeline
    and what every rank does; `--trace` writes every pass, message and the end of the step.
    """

"""`plan sweep`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import page
from trainplan.cli.options.names import KNOBS
from trainplan.cli.options.shared import (
    JSON,
    PLAN,
    PROFILE,
    WORKERS,
    report_options,
    time_limit,
)


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
    f"{', '.join(KNOBS)} (nic multiplies), and the fields of --fix, such as tp=1,2,4. The first "
    "is the curve; more give one curve for each of their values.",
)
@click.option("--weak", is_flag=True, help="Grow the batch with the GPUs: weak scaling.")
@PROFILE
@time_limit(120.0, "Search points until then; those left are said to be untried.")
@WORKERS
@report_options
@JSON
def command() -> None:
    """Vary the job of a plan; search every point.

    PLAN is a file written by `plan search --output`; its model, batch, memory margin and choices
    hold. Prints the best layout of each point, its speed and the scaling efficiency.
    """

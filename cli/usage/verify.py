"""`plan verify`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import page
from trainplan.cli.options.one_of import OneOf
from trainplan.cli.options.parameters import finite
from trainplan.cli.options.shared import PLAN


@page("verify", "plan verify plan.json --nproc 4")
@PLAN
@click.option(
    "--nproc",
    type=OneOf("number of processes", ("2", "4", "8")),
    default="4",
    show_default=True,
    help="Processes of this machine.",
)
@click.option(
    "--steps",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    help="Steps that are trained and compared.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    callback=finite,
    default=300.0,
    show_default=True,
    help="Seconds after which a combination that has not ended is ended.",
)
@click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line.")
def command() -> None:
    """Run a plan, shrunk to a few processes, and compare.

    PLAN is a file written by `plan search --output`. A tiny model of its kind is trained with
    megatron-core itself, or with torch's own FSDP2, DTensor and pipelining for plans of torchtitan,
    fsdp2 and accelerate, on GPUs over NCCL or on the CPU over gloo: what the plan uses, each by
    itself and together. Losses and gradient norms are compared with those of one process, weights,
    bytes sent and bytes kept of every rank with what the cost model counts. Needs `pip install
    'trainplan[train]'`. With --json, one object a line as it goes; the last has all. Exit code 3:
    something differs.
    """

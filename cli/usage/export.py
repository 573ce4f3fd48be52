"""`plan export`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import page
from trainplan.cli.options.names import EXPORTERS, KEY_TABLES, LAUNCHERS
from trainplan.cli.options.one_of import OneOf
from trainplan.cli.options.shared import CANDIDATE, FORCE, PATH, PLAN


@page("export", "plan export plan.json --launcher slurm --output-dir launch")
@PLAN
@CANDIDATE
@click.option(
    "--runtime",
    type=OneOf("runtime", EXPORTERS),
    show_default="the plan's own",
    metavar="RUNTIME",
    help=f"Training runtime whose options are written: {', '.join(EXPORTERS)}.",
)
@click.option(
    "--launcher",
    type=OneOf("launcher", LAUNCHERS),
    default="torchrun",
    show_default=True,
    help="torchrun writes run.sh for every node (torchrun-c10d: nodes number themselves), slurm "
    "run.sbatch, mpi run_mpi.sh, kubernetes a TrainJob, pytorchjob a PyTorchJob, skypilot a task.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="With slurm: an array job that tries the N best layouts of the plan, one after the other.",
)
@click.option(
    "--output-dir",
    type=PATH,
    help="New folder for the script, what it reads, and a copy of the plan.",
)
@click.option(
    "--keys",
    type=OneOf("project", KEY_TABLES),
    help="Print the plan as settings of this project over Megatron instead, and write nothing.",
)
@click.option(
    "--one-rank",
    type=click.IntRange(0, 1 << 30),
    metavar="RANK",
    help="Instead of a launch: run_one_rank.sh, which runs this rank of the whole job on one GPU, "
    "communication faked, and logs its memory (Megatron-LM).",
)
@FORCE
def command() -> None:
    """Write the launch script of a plan.

    PLAN is a file written by `plan search --output`. The script asks for what you alone know, such
    as the paths of data and checkpoints, in variables that this command lists.
    """

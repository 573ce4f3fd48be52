"""`plan check`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import page
from trainplan.cli.options.names import LARGEST_SIZE, RUNTIMES
from trainplan.cli.options.one_of import OneOf
from trainplan.cli.options.shared import (
    FORCE,
    JSON,
    PATH,
    PROFILE,
    TRAIN,
    memory_margin,
    time_limit,
)


@page(
    "check",
    "plan check train.sh --cluster 8x8:h100-sxm",
    "  plan check -- torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 ...",
)
@click.argument("launch", nargs=-1, required=True, metavar="FILE | -- COMMAND...")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a variable that the script takes from elsewhere, again for more.",
)
@click.option(
    "--cluster",
    metavar="CLUSTER",
    shell_complete=completions.cluster,
    help="As in `plan search`.  [default: as many h100-sxm as the launch starts ranks]",
)
@click.option(
    "--model",
    metavar="MODEL",
    shell_complete=completions.MODEL,
    help="For launches that name no shape: as in search.",
)
@TRAIN
@click.option(
    "--seq-length",
    type=click.IntRange(1, LARGEST_SIZE),
    help="For launches that do not say it: tokens per sequence.",
)
@click.option(
    "--global-batch-size",
    type=click.IntRange(1, LARGEST_SIZE),
    help="For launches that do not say it: sequences per step.",
)
@click.option(
    "--runtime",
    type=OneOf("runtime", RUNTIMES),
    metavar="RUNTIME",
    help="Runtime of the launch, where its program does not tell.",
)
@PROFILE
@memory_margin(0.0)
@time_limit(10.0, "Look for a better layout until then.")
@click.option("--write", type=PATH, help="Write the corrected command, or configuration, here.")
@FORCE
@JSON
def command() -> None:
    """Judge a launch you have; say which edits pay.

    FILE is a launch script, or a configuration of torchtitan, DeepSpeed or Accelerate. It says if
    the launch runs, fits and what it costs. Nothing is executed: what only a run would tell is
    named, with its line.
    """

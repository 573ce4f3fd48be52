"""`plan calibrate`: its options and help page."""

from __future__ import annotations

from typing import Final

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import gathered, page
from trainplan.cli.options.names import DEFAULT_RUNTIME, PRECISIONS, RUNTIMES
from trainplan.cli.options.one_of import OneOf
from trainplan.cli.options.shared import (
    FORCE,
    JSON,
    PATH,
    RUNTIME_OPTION,
    global_batch_size,
    seq_length,
)

DEFAULT_PRECISION: Final = "bf16"
logged_options = gathered(
    "logged",
    "LogOptions",
    (
        click.option(
            "--log",
            multiple=True,
            type=PATH,
            help="A training log of Megatron-LM, Megatron-Bridge, torchtitan, DeepSpeed, "
            "ArcticTraining, NeMo 2 or the FSDP2 program of `plan export`; with the options below. "
            "Repeat it with another --layout for another run of the same job.",
        ),
        click.option(
            "--layout",
            multiple=True,
            metavar="LAYOUT",
            shell_complete=completions.LAYOUT,
            help="Layout of the log (`plan estimate`).",
        ),
        click.option(
            "--model",
            metavar="MODEL",
            shell_complete=completions.MODEL,
            help="As in `plan search`.",
        ),
        click.option(
            "--cluster",
            metavar="CLUSTER",
            shell_complete=completions.cluster,
            help="As in `plan search`.",
        ),
        global_batch_size(required=False),
        seq_length(required=False),
        RUNTIME_OPTION,
    ),
)
chosen_options = gathered(
    "chosen",
    "RunSelection",
    (
        click.option(
            "--gpu",
            metavar="GPU",
            shell_complete=completions.GPU,
            help="Take only runs on this GPU.",
        ),
        click.option(
            "--precision",
            type=OneOf("precision", PRECISIONS),
            help=f"Of the log ({DEFAULT_PRECISION}); of a file of runs, take only those.",
        ),
        click.option(
            "--runtime",
            type=OneOf("runtime", RUNTIMES),
            metavar="RUNTIME",
            help=f"Of the log ({DEFAULT_RUNTIME}); of a file of runs, take only those.",
        ),
    ),
)
PROFILE = click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=PATH,
    help="Correct these measurements instead of the catalog: a file of `plan profile` (several "
    "merge). Give them again wherever the calibration is used.",
)
OUTPUT = click.option(
    "--output",
    type=PATH,
    help="Write the calibration here (`--profile` of other commands reads it).",
)


@page(
    "calibrate",
    "plan calibrate --log train.log --model llama3-8b --cluster 1x8:h100-sxm \\",
    "  --global-batch-size 128 --seq-length 8192 --layout tp=2,sp=true \\",
    "  --output calibration.json",
)
@click.argument("files", nargs=-1, metavar="[RUNS.jsonl]...", type=PATH)
@logged_options
@chosen_options
@PROFILE
@gathered("destination", "trainplan.cli.options.stated:Destination", (OUTPUT, FORCE, JSON))
def command() -> None:
    """Correct the estimate by measured steps.

    Give either files of measured runs, one JSON object a line (`plan validate` reads them too), or
    the log of a training run and what ran. One step tells how fast the machine is; several, of
    unlike layouts, may tell network and fixed overhead apart.
    """

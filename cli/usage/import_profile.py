"""`plan import`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import gathered, page
from trainplan.cli.options.names import PRECISIONS, PROFILE_FORMATS
from trainplan.cli.options.one_of import OneOf
from trainplan.cli.options.shared import FORCE, JSON, PATH, seq_length

FURTHER = (
    ""
    if "simumax" in PROFILE_FORMATS
    else "; aceso, galvatron, metis, sailor and simumax: `pip install ./examples/importers`"
)
ASKED = (
    click.option(
        "--gpu",
        required=True,
        shell_complete=completions.GPU,
        help="What it was measured on (`plan catalog gpus`).",
    ),
    click.option(
        "--gpus-per-node",
        type=click.IntRange(1, 1024),
        help="GPUs of one node, where the files do not say.",
    ),
    click.option(
        "--model",
        metavar="MODEL",
        shell_complete=completions.MODEL,
        help="Whose layers were measured.",
    ),
    seq_length(required=False),
    click.option("--precision", type=OneOf("precision", PRECISIONS), help="Number format."),
    click.option("--source", default="", help="Where the files come from; kept in the profile."),
)


@page(
    "import",
    "plan import nccl-tests all_reduce.txt all_gather.txt --gpu h100-sxm \\",
    "  --output profile.json",
)
@click.argument("format_name", metavar="FORMAT", type=OneOf("format", PROFILE_FORMATS, FURTHER))
@click.argument("files", nargs=-1, required=True, type=PATH)
@gathered("asked", "asked_for", ASKED)
@click.option("--output", type=PATH, required=True, help="The profile.")
@FORCE
@JSON
def command() -> None:
    """Read a profile of another tool.

    FORMAT: nccl-tests; with the plug-in in examples/importers also aceso, galvatron, metis, sailor
    and simumax. Logs of whole steps (Megatron-LM, torchtitan, torch profiler) go to
    `plan calibrate --log`.
    """

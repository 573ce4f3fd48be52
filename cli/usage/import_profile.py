"""`plan import`: its options and help page."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.options.help import example
from trainplan.cli.options.names import LARGEST_SIZE, PRECISIONS, PROFILE_FORMATS
from trainplan.cli.options.shared import FORCE, JSON, gathered
from trainplan.cli.terminal.lazily import call

ASKED = (
    click.option("--gpu", required=True, help="What it was measured on (`plan catalog gpus`)."),
    click.option(
        "--gpus-per-node",
        type=click.IntRange(1, 1024),
        help="GPUs of one node, where the files do not say.",
    ),
    click.option("--model", metavar="MODEL", help="Whose layers were measured."),
    click.option("--seq-length", type=click.IntRange(1, LARGEST_SIZE), help="Tokens per sequence."),
    click.option("--precision", type=click.Choice(PRECISIONS), help="Number format."),
    click.option("--source", default="", help="Where the files come from; kept in the profile."),
)


@click.command(
    "import",
    epilog=example(
        "plan import nccl-tests all_reduce.txt all_gather.txt --gpu h100-sxm \\",
        "  --output profile.json",
    ),
)
@click.argument("format_name", metavar="FORMAT", type=click.Choice(PROFILE_FORMATS))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@gathered("asked", "trainplan.cli.commands.import_profile:asked_for", ASKED)
@click.option("--output", type=click.Path(path_type=Path), required=True, help="The profile.")
@FORCE
@JSON
def command(**values: object) -> None:
    """Read a profile of another tool.

    FORMAT: aceso, galvatron, metis, nccl-tests, sailor or simumax. Logs of whole steps
    (Megatron-LM, torchtitan, torch profiler) go to `plan calibrate --log`.
    """
    call("trainplan.cli.commands.import_profile:command", **values)

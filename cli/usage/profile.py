"""`plan profile`: its options and help page."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import gathered, page
from trainplan.cli.options.names import (
    LAUNCH_KINDS,
    LAYER_RUNTIMES,
    MEASURED_OPTIMIZERS,
    MEASUREMENTS,
    PRECISIONS,
)
from trainplan.cli.options.one_of import OneOf
from trainplan.cli.options.parameters import second_count
from trainplan.cli.options.shared import FORCE, JSON, PATH, REPORT, seq_length

LOCAL = Path("profile.json")

WANTED = (
    click.option(
        "--model",
        metavar="MODEL",
        shell_complete=completions.MODEL,
        help="Measure the shapes of this model: a preset, a config.json, its folder or our YAML. "
        "Left out: llama3-8b on GPUs, a tiny one on a CPU.",
    ),
    seq_length(required=False),
    click.option(
        "--precision",
        type=OneOf("precision", PRECISIONS),
        help="Number format of the products. [default: bf16, on a CPU fp32]",
    ),
    click.option(
        "--runtime",
        multiple=True,
        type=OneOf("runtime", LAYER_RUNTIMES),
        help="Measure whole layers as this runtime trains them; may be repeated. [default: plain "
        "PyTorch, and Megatron-LM where megatron-core is installed]",
    ),
    click.option(
        "--quick", is_flag=True, help="A shorter list, about a minute: fewer sizes, fewer repeats."
    ),
    click.option(
        "--budget",
        metavar="TIME",
        callback=second_count,
        help="End in this time, start included, such as 60s or 5m: of the list, with --quick of "
        "the shorter one, what tells most of a step goes first; the answer says what was left out.",
    ),
    click.option(
        "--only",
        multiple=True,
        type=OneOf("measurement", MEASUREMENTS),
        metavar="ITEM",
        help=f"Measure this alone; may be repeated: {', '.join(MEASUREMENTS)}.",
    ),
    click.option(
        "--optimizer",
        multiple=True,
        type=OneOf("optimizer", MEASURED_OPTIMIZERS),
        metavar="NAME",
        help="Measure a step of this beside AdamW's; may be repeated: "
        f"{', '.join(MEASURED_OPTIMIZERS[1:])}.",
    ),
    click.option(
        "--all-links",
        is_flag=True,
        help="Time all pairs of GPUs and nodes, not five random rounds.",
    ),
    click.option(
        "--scratch",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="Folder on the drive to measure; files in it are removed again.",
    ),
)

NODES = (
    click.option(
        "--nproc-per-node",
        type=click.IntRange(1, 1024),
        help="Processes of one node. [default: its GPUs, or two on a CPU]",
    ),
    click.option(
        "--nnodes", type=click.IntRange(1, 1 << 16), default=1, show_default=True, help="Nodes."
    ),
    click.option("--node-rank", type=click.IntRange(0), help="Number of this node, from 0."),
    click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Where node 0 is found."),
    click.option(
        "--timeout",
        type=click.FloatRange(1, 3600),
        default=60.0,
        show_default=True,
        help="Seconds after which a rank or node that does not go on ends the run.",
    ),
    click.option(
        "--start-timeout",
        type=click.FloatRange(1, 86400),
        default=300.0,
        show_default=True,
        help="Seconds for all nodes to come, and for slow drives to load torch; a rank that does "
        "nothing meanwhile is given --timeout.",
    ),
)


@page(
    "profile",
    "plan profile --model llama3-8b --output profile.json",
    "plan search --model llama3-8b --cluster profile.json \\",
    "  --global-batch-size 64 --seq-length 4096",
)
@gathered("wanted", "MeasureOptions", WANTED)
@gathered("nodes", "NodeOptions", NODES)
@click.option(
    "--output",
    type=PATH,
    default=LOCAL,
    show_default=True,
    help="The profile; every sample also goes into OUTPUT.journal.jsonl at once.",
)
@click.option("--restart", is_flag=True, help="Drop the journal of an earlier run.")
@click.option(
    "--print-launch",
    type=OneOf("launcher", LAUNCH_KINDS),
    help="Print a script that measures --nnodes nodes, and end.",
)
@REPORT
@FORCE
@JSON
def command() -> None:
    """Measure this machine: compute, memory, links.

    All GPUs of the machine, or its CPU over gloo where it has none. A run that was interrupted goes
    on where it stopped. Other commands take the file as --profile, or as --cluster.
    """

"""Options of where it is trained: a cluster in one word, or its parts."""

from collections.abc import Iterator

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import Given
from trainplan.cli.options.names import SAVES
from trainplan.cli.options.parameters import (
    PUBLISHED,
    IntRange,
    OneOf,
    Whole,
    gb_per_s,
    hour_count,
    job_option,
    minute_count,
    node_day_count,
)
from trainplan.cli.terminal import named

CLUSTER = job_option(
    "--cluster",
    "8x8:h100 (nodes x GPUs), 64xh100, a machine such as 2xp5.48xlarge (`plan catalog clusters`), "
    "a YAML file, or one of `plan profile`.  [default: the GPUs of this machine]",
)
COUNTS = (
    click.option(
        "--nodes",
        type=Whole(1 << 20),
        metavar="N",
        help="In place of --cluster: nodes.",
    ),
    click.option(
        "--gpus",
        type=Whole(1 << 20),
        metavar="N",
        help="In place of --cluster: GPUs of each node, or without --nodes of them all.",
    ),
    click.option(
        "--gpu",
        metavar="GPU",
        shell_complete=completions.GPU,
        help="In place of --cluster: their kind, such as h100.",
    ),
)
NIC = click.option(
    "--nic",
    metavar="SPEED",
    help="Network of a node: 400Gb/s (for each GPU), 4x100Gb/s or 3200Gb/s/node; Gb/s or GB/s.  "
    "[default: the cluster's]",
)
POWER_LIMIT = click.option(
    "--power-limit",
    metavar="WATTS",
    help="Board power that a GPU may draw, such as 500W; its clock follows.  [default: the "
    "cluster's, else the GPU's own]",
)
PRICE = click.option(
    "--price",
    metavar="MONEY",
    help="Price of a GPU hour: 2.5, '$2.5', 'EUR 2'; with --tokens adds that of the run.  "
    "[default: the cluster's]",
)
FAILURES = (
    click.option(
        "--mtbf-node",
        callback=node_day_count,
        shell_complete=completions.names((PUBLISHED,)),
        metavar="TIME|published",
        help="Mean time between failures of a node, such as 400d, or of a published run: adds what "
        "failures and saves take.  [default: the cluster's, else without failures]",
    ),
    click.option(
        "--restart",
        callback=minute_count,
        metavar="TIME",
        help="Time from a failure until training goes on.  [default: the cluster's, else 10m]",
    ),
    click.option(
        "--checkpoint",
        callback=gb_per_s,
        metavar="SPEED",
        help="Speed at which all nodes together write a checkpoint, such as 50GB/s.",
    ),
    click.option(
        "--save",
        type=OneOf("way to save", SAVES),
        help="Training waits for a save, or for its copy in host memory (async), which stays there "
        "and on another node (local).  [default: the cluster's, else sync]",
    ),
    click.option(
        "--spare-nodes",
        type=IntRange(0, 1 << 10),
        metavar="N",
        help="Nodes more than the cluster's, which replace failed ones; they are paid.",
    ),
    click.option(
        "--repair",
        callback=hour_count,
        metavar="TIME",
        help="Time until a failed node is back.  [default: another is there at once]",
    ),
)
"""`--mtbf-node` to `--repair`: `failures` of a cluster."""
WHERE = (CLUSTER, *COUNTS, NIC, POWER_LIMIT, PRICE, *FAILURES)
"""All of them, in the order of the help page."""

OFFERS = click.option(
    "--offers",
    metavar="FILE|CLUSTER=PRICE,...",
    shell_complete=completions.names((), files=True),
    help="With --objective cost: machines to compare, as 8x8:h100=2.5,8x8:a100=1.2 or a YAML or "
    "CSV of name, cluster, price_per_gpu_hour, currency.",
)
MACHINE = ("cluster", "nodes", "gpus", "gpu", "offers")
"""Options of where it is trained, by name."""


def needs_a_machine(given: Given, lacking: bool) -> Iterator[tuple[str, str]]:  # noqa: FBT001
    """`--cluster`, where nothing states where it is trained and this machine has no GPU.

    Drivers are queried only if something else is `lacking`; else they are when the command answers.
    """
    if lacking and given.keys().isdisjoint(MACHINE):
        why = named("trainplan.cli.values.machine:nothing_here")()
        if why:
            yield "--cluster", str(why)


def needs_machine_and_length(given: Given, lacking: bool) -> Iterator[tuple[str, str]]:  # noqa: FBT001
    """A machine, and the length of a sequence unless the longest is looked for."""
    longest = given.get("objective") == "context" and "pareto" not in given
    no_length = "seq_length" not in given and not longest
    if no_length:
        yield "--seq-length", ""
    yield from needs_a_machine(given, lacking or no_length)

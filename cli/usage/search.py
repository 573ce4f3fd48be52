"""`plan search`: its options and help page."""

from __future__ import annotations

from collections.abc import Iterator

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import Given, gathered, page
from trainplan.cli.options.names import LEVELS, OBJECTIVES
from trainplan.cli.options.one_of import OneOf
from trainplan.cli.options.parameters import day_count, percentage
from trainplan.cli.options.shared import (
    WORKERS,
    destination_options,
    memory_margin,
    search_job_options,
    time_limit,
)
from trainplan.cli.options.where import needs_a_machine

OBJECTIVE = click.option(
    "--objective",
    type=OneOf("objective", OBJECTIVES),
    default="time",
    show_default=True,
    help="What is best: the fastest step, the most free memory near it, the least money or energy, "
    "the fewest GPUs that meet the deadline (these three may leave nodes unused), or the longest "
    "sequence that trains.",
)
SLACK = click.option(
    "--slack",
    callback=percentage,
    metavar="PERCENT",
    help="With --objective memory: how much longer than the fastest a step may take.  "
    "[default: 2%]",
)
DEADLINE = click.option(
    "--deadline",
    callback=day_count,
    metavar="DURATION",
    help="The run of --tokens must end by then: 30d, 36h, 2w.",
)
PARETO = click.option(
    "--pareto",
    shell_complete=completions.names(completions.FRONTS),
    metavar="A,B",
    help="Instead of one answer, every layout that no other beats in both objectives: time,memory "
    "or cost,time.",
)

search_options = gathered(
    "options",
    "search_options",
    (
        OBJECTIVE,
        SLACK,
        DEADLINE,
        click.option(
            "--fix",
            multiple=True,
            metavar="FIELD=VALUE",
            shell_complete=completions.pairs(completions.CHOICES),
            help="Hold a field: tp=8.",
        ),
        click.option(
            "--exclude",
            shell_complete=completions.pairs(completions.CHOICES),
            multiple=True,
            metavar="FIELD=VALUE",
            help="Keep a field from a value: recompute=full.",
        ),
        click.option(
            "--trusted",
            is_flag=True,
            help="Only layouts within what published runs on such a runtime measured, axis by "
            "axis; says what that costs.",
        ),
        click.option(
            "--search-options",
            type=OneOf("choice", LEVELS),
            default="safe",
            show_default=True,
            help="Settings of the runtime that are searched where no --option states them: safe "
            "ones, which change no numerics; all, with stored precision; or none.",
        ),
        memory_margin(0.05),
        click.option(
            "--top",
            type=click.IntRange(1, 100),
            default=10,
            show_default=True,
            help="Alternatives to list.",
        ),
    ),
)


def needs(given: Given, lacking: bool) -> Iterator[tuple[str, str]]:  # noqa: FBT001
    """A machine, and the length of a sequence unless the longest is looked for."""
    longest = given.get("objective") == "context" and "pareto" not in given
    no_length = "seq_length" not in given and not longest
    if no_length:
        yield "--seq-length", ""
    yield from needs_a_machine(given, lacking or no_length)


@page(
    "search",
    "plan search --model llama3-70b --cluster 8x8:h100-sxm \\",
    "  --global-batch-size 128 --seq-length 8192 --output plan.json",
    needs=needs,
)
@search_job_options
@search_options
@time_limit(30.0, "Answer with what is found by then, and say what is proved.")
@WORKERS
@click.option(
    "--baseline",
    metavar="LAYOUT",
    shell_complete=completions.LAYOUT,
    help="Your layout (see `plan estimate`), to compare.",
)
@PARETO
@click.option(
    "--verbose",
    is_flag=True,
    help="Also print the memory of every pipeline rank, the settings that were searched, more "
    "measured runs, other schedules and what was refused.",
)
@destination_options
def command() -> None:
    """Find the fastest layout that fits, with proof.

    Prints the layout, how sure it is, where its step time goes and the alternatives.
    """

"""`plan tune`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import gathered, page
from trainplan.cli.options.names import DEFAULT_RUNTIME, PRECISIONS, RUNTIMES, TRIAL_LAUNCHERS
from trainplan.cli.options.one_of import OneOf
from trainplan.cli.options.parameters import second_count
from trainplan.cli.options.shared import (
    PATH,
    PROFILE,
    RUNTIME_OPTION,
    global_batch_size,
    report_options,
    seq_length,
)

ASKED = (
    click.option(
        "--model",
        metavar="MODEL",
        shell_complete=completions.MODEL,
        help="As in `plan search`, in place of PLAN.",
    ),
    click.option(
        "--cluster",
        metavar="CLUSTER",
        shell_complete=completions.cluster,
        help="As in `plan search`. [default: this machine; with --nproc it is measured first]",
    ),
    global_batch_size(required=False),
    seq_length(required=False),
    click.option(
        "--precision",
        type=OneOf("precision", PRECISIONS),
        help="Number format of the matrix products. [default: bf16, in processes of a CPU fp32]",
    ),
    click.option(
        "--runtime",
        type=OneOf("runtime", RUNTIMES),
        metavar="RUNTIME",
        help=f"As in `plan search`. [default: {DEFAULT_RUNTIME}]",
    ),
    RUNTIME_OPTION,
    PROFILE,
)
WAY = (
    click.option(
        "--nproc",
        type=click.IntRange(1, 64),
        metavar="N",
        help="Train in N processes of this machine, as `plan verify` does, without launch files.",
    ),
    click.option(
        "--launcher",
        type=OneOf("launcher", TRIAL_LAUNCHERS),
        help="How a trial is started: torchrun runs run.sh here, slurm submits run.sbatch, command "
        "runs --command. [default: processes with --nproc, else torchrun]",
    ),
    click.option(
        "--command",
        "template",
        metavar="TEMPLATE",
        help="What starts a trial, with {folder} and {script}: 'ssh head bash {folder}/{script}'.",
    ),
    click.option(
        "--stop-command",
        metavar="TEMPLATE",
        help="What ends a trial that --command started on another machine, filled in as it is: "
        "'ssh head pkill -f {folder}/{script}'.",
    ),
    click.option(
        "--simulate",
        type=PATH,
        metavar="MACHINE.json",
        help="Launch nothing: a simulated machine with hidden constants, faults and noise answers.",
    ),
)
LIMITS = (
    click.option(
        "--trials",
        type=click.IntRange(1, 1000),
        default=8,
        show_default=True,
        help="At most so many; one that is repeated after a lost node counts once.",
    ),
    click.option(
        "--budget",
        callback=second_count,
        metavar="DURATION",
        help="Start no trial once trials took so long: 30m, 2h.",
    ),
    click.option(
        "--steps",
        type=click.IntRange(2, 10_000),
        default=10,
        show_default=True,
        help="Steps that are timed after a warm-up of two; up to twice as many if they are uneven.",
    ),
    click.option(
        "--timeout",
        callback=second_count,
        default="15m",
        show_default=True,
        metavar="DURATION",
        help="Longest time for one trial.",
    ),
)
KEPT = (
    click.option(
        "--output-dir",
        type=PATH,
        metavar="FOLDER",
        help="New folder for the trials, the tuned plan and the calibration. [default: tune-MODEL, "
        "numbered]",
    ),
    click.option("--resume", is_flag=True, help="Go on in that folder: no trial is repeated."),
    click.option("--dry-run", is_flag=True, help="Print what would be run, and run nothing."),
)


@page(
    "tune",
    "plan tune --model examples/tiny.yaml --nproc 4",
    "plan tune plan.json --launcher slurm --trials 8 --budget 2h",
)
@click.argument("plan", type=PATH, required=False)
@gathered("asked", "trainplan.cli.options.tuned:Asked", ASKED)
@gathered("way", "trainplan.cli.options.tuned:Way", WAY)
@gathered("limits", "trainplan.cli.options.tuned:Limits", LIMITS)
@gathered("kept", "trainplan.cli.options.tuned:Kept", KEPT)
@report_options
@click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line.")
def command() -> None:
    """Find the fastest layout by running the likeliest ones.

    PLAN is a file written by `plan search --output`; without it, --model and --cluster are searched
    first. Each trial corrects the cost model, which chooses the next one. Ends when with 90 %
    probability no other layout is faster by more than 1 %, or when the budget is spent.
    """

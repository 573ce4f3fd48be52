"""`plan schedule`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import Decorator, gathered, page
from trainplan.cli.options.names import SCHEDULES
from trainplan.cli.options.one_of import OneOf
from trainplan.cli.options.parameters import finite
from trainplan.cli.options.shared import PATH, output_options, time_limit

SYNTHESIS_SECONDS = 30.0

LARGEST = 1 << 30

way_options = gathered(
    "way",
    "trainplan.cli.options.schedule:way",
    (
        click.option(
            "--kind",
            metavar="KIND",
            shell_complete=completions.names((*SCHEDULES, "all")),
            help=f"{', '.join(SCHEDULES)}, or all of them.",
        ),
        click.option("--synthesise", is_flag=True, help="Let a solver find the best order it can."),
        click.option(
            "--from-csv",
            type=PATH,
            help='Score a schedule file of torch\'s pipeline runtime (format "compute_only").',
        ),
    ),
)
"""`--kind --synthesise --from-csv`, as `way`."""

_COUNT = click.IntRange(1, LARGEST)
size_options = gathered(
    "sizes",
    "trainplan.cli.options.schedule:Sizes",
    (
        click.option(
            "--placement",
            type=OneOf("placement", ("loop", "v")),
            help="Which virtual stages share a rank: stage modulo pp, or there and back again.",
        ),
        click.option("--pp", type=_COUNT, help="Pipeline ranks."),
        click.option(
            "--vpp",
            type=_COUNT,
            help="Virtual stages of a rank.  [default: 1, or what the kind needs]",
        ),
        click.option("--num-microbatches", type=_COUNT, help="Micro batches of a step."),
        click.option(
            "--microbatch-group-size",
            type=_COUNT,
            help="Micro batches that go through one virtual stage in a row, where a kind has it.",
        ),
        click.option(
            "--sequence-chunks",
            type=_COUNT,
            default=1,
            show_default=True,
            help="Parts of a sequence, where a kind cuts it.",
        ),
        click.option(
            "--memory-limit",
            type=_COUNT,
            help="Activations a rank may hold, of one micro batch through one virtual stage each.",
        ),
        click.option(
            "--split-backward",
            is_flag=True,
            help="Send the input gradient before the weight gradient is computed.",
        ),
    ),
)
"""`--placement` to `--split-backward`, as `sizes`."""


def _positive(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    """Callback of a duration: negative ones are refused, and what is no number."""
    if finite(context, parameter, value) is not None and value is not None and value < 0:
        raise click.BadParameter(f"{value:g} is negative: a duration is 0 or more")
    return value


def _duration(name: str, text: str, default: float | None = None) -> Decorator:
    """An option whose value is a duration in any unit."""
    return click.option(
        name,
        type=float,
        callback=_positive,
        default=default,
        show_default=default is not None,
        metavar="TIME",
        help=text,
    )


duration_options = gathered(
    "durations",
    "trainplan.cli.options.schedule:Durations",
    (
        _duration("--forward", "Duration of a virtual stage's forward pass.  [default: 1]"),
        _duration("--input-grad", "Duration of its input gradient.  [default: 1]"),
        _duration("--weight-grad", "Duration of its weight gradient.  [default: 1]"),
        _duration("--p2p", "Latency of a message between ranks; it occupies nobody.", 0.0),
        click.option(
            "--stage-times",
            type=PATH,
            help="File with forward, input_grad and weight_grad of every virtual stage instead.",
        ),
        click.option(
            "--attention-share",
            type=click.FloatRange(0, 1),
            callback=finite,
            default=0.0,
            show_default=True,
            help="Part of a forward pass that is attention, for sequence chunks.",
        ),
        _duration(
            "--vocab-forward",
            "Forward pass of a rank's share of the output layer, where a kind has it.",
            0.0,
        ),
        _duration("--vocab-backward", "Gradients of that share.", 0.0),
        _duration(
            "--offload",
            "Let activations wait on the host: time of the copy of one pass, and of one back.",
            0.0,
        ),
        click.option(
            "--offload-chunks",
            type=_COUNT,
            help="Virtual stages of each rank, the first ones, whose activations are copied.  "
            "[default: all]",
        ),
    ),
)
"""`--forward` to `--offload-chunks`, as `durations`."""


@page(
    "schedule",
    "plan schedule --kind zb-h1 --pp 4 --num-microbatches 8 \\",
    "  --forward 3 --input-grad 4 --weight-grad 2",
)
@way_options
@size_options
@duration_options
@time_limit(SYNTHESIS_SECONDS, "Of --synthesise: answer with what is found by then.")
@output_options("; a unit of time is a second")
def command() -> None:
    """Time and proof of a pipeline schedule.

    Durations are those of one micro batch through one virtual stage, in any unit. Prints the
    makespan, how far it is from the best possible, the timeline and the activations held. With
    `--kind all` the schedules that run with this vpp are ranked, and files hold the fastest, with
    `--csv` the fastest that torch runs.
    """

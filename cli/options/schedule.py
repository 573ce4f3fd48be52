"""Options of `plan schedule`, gathered into what they describe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trainplan.cli.options.parameters import finite
from trainplan.cli.options.shared import Decorator, gathered
from trainplan.cli.options.stage_times import read_stage_times
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.schedules.program import Placement, Shape
from trainplan.planner.schedules.compare import known
from trainplan.planner.schedules.pipelines import (
    Extras,
    Pipeline,
    StageTimes,
    freed_bytes,
    require_size,
    stage_seconds,
)

LARGEST = 1 << 30
ALL = "all"
ONE_SECOND = 1.0
"""A duration that is not stated: the unit of the others."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where the schedule comes from; exactly one of the three."""

    kind: str | None
    synthesise: bool
    from_csv: Path | None

    def default_vpp(self, placement: Placement | None) -> int:
        """Virtual stages of a rank, unless stated: one, or what the schedule needs."""
        if placement == "v" and (self.synthesise or self.kind == ALL):
            return 2
        if self.kind in (None, ALL):
            return 1
        schedule = SCHEDULES[self.kind]
        return schedule.least_vpp if schedule.least_vpp == schedule.most_vpp else 1


def _way(*, kind: str | None, synthesise: bool, from_csv: Path | None) -> Way:
    if (kind is not None) + synthesise + (from_csv is not None) != 1:
        raise click.UsageError(
            "give one of --kind KIND, --kind all, --synthesise and --from-csv FILE; kinds: "
            f"{', '.join(SCHEDULES)}"
        )
    if kind is not None and kind != ALL:
        known(kind)
    return Way(kind, synthesise, from_csv)


way_options = gathered(
    "way",
    _way,
    (
        click.option("--kind", metavar="KIND", help=f"{', '.join(SCHEDULES)}, or all of them."),
        click.option("--synthesise", is_flag=True, help="Let a solver find the best order it can."),
        click.option(
            "--from-csv",
            type=click.Path(path_type=Path),
            help='Score a schedule file of torch\'s pipeline runtime (format "compute_only").',
        ),
    ),
)
"""`--kind --synthesise --from-csv`, as `way`."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is stated of the pipeline's shape."""

    pp: int | None
    vpp: int | None
    num_microbatches: int | None
    placement: Placement | None
    microbatch_group_size: int | None
    sequence_chunks: int
    memory_limit: int | None
    split_backward: bool

    def shape(self, way: Way) -> Shape:
        """The shape of a schedule that is made.

        Raises:
            UsageError: A size is missing.
        """
        if self.pp is None or self.num_microbatches is None:
            missing = "--pp" if self.pp is None else "--num-microbatches"
            raise click.UsageError(f"Missing option '{missing}'.")
        return Shape(
            self.pp,
            self.vpp or way.default_vpp(self.placement),
            self.num_microbatches,
            self.microbatch_group_size,
            self.memory_limit,
            self.sequence_chunks,
        )


_COUNT = click.IntRange(1, LARGEST)
size_options = gathered(
    "sizes",
    Sizes,
    (
        click.option(
            "--placement",
            type=click.Choice(("loop", "v")),
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


@dataclass(frozen=True, slots=True)
class Durations:
    """What is stated of the passes' durations."""

    forward: float | None
    input_grad: float | None
    weight_grad: float | None
    p2p: float
    stage_times: Path | None
    attention_share: float
    vocab_forward: float
    vocab_backward: float
    offload: float
    offload_chunks: int | None

    def pipeline(
        self, shape: Shape, *, stages: int | None = None, split_backward: bool
    ) -> Pipeline:
        """The pipeline that `plan schedule` is asked about; `stages` where not pp * vpp.

        Raises:
            PlanError: A duration or the file of durations is wrong.
        """
        require_size(shape)
        extras = Extras(
            shape.sequence_chunks,
            self.attention_share,
            self.vocab_forward,
            self.vocab_backward,
            self.offload,
        )
        times = self._stages(stages or shape.pp * shape.vpp)
        copied = (self.offload_chunks or shape.vpp) if self.offload else 0
        seconds, freed = stage_seconds(times, extras), freed_bytes(times)
        return Pipeline(shape, seconds, self.p2p, split_backward, copied, freed)

    def _stages(self, count: int) -> tuple[StageTimes, ...]:
        stated = (self.forward, self.input_grad, self.weight_grad)
        if self.stage_times:
            if any(value is not None for value in stated):
                raise click.UsageError(
                    "--stage-times replaces --forward, --input-grad and --weight-grad: give one"
                )
            return read_stage_times(self.stage_times, count)
        times = (ONE_SECOND if value is None else value for value in stated)
        return (StageTimes(*times),) * count


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
    Durations,
    (
        _duration("--forward", "Duration of a virtual stage's forward pass.  [default: 1]"),
        _duration("--input-grad", "Duration of its input gradient.  [default: 1]"),
        _duration("--weight-grad", "Duration of its weight gradient.  [default: 1]"),
        _duration("--p2p", "Latency of a message between ranks; it occupies nobody.", 0.0),
        click.option(
            "--stage-times",
            type=click.Path(path_type=Path),
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

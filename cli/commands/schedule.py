"""`plan schedule`: what a pipeline schedule takes, and what no other could beat."""

from collections.abc import Callable
from pathlib import Path

import click

from trainplan.cli.options import (
    PATH,
    OneOf,
    completions,
    gathered,
    names,
    output_options,
    page,
    parameters,
    time_limit,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import show
    from trainplan.cli.documents import RankingDocument, ScheduleDocument
    from trainplan.cli.files import read_text
    from trainplan.cli.pages import screen
    from trainplan.cli.terminal import Clock, page_width, remark, show_json
    from trainplan.cli.values import (
        ALL,
        Durations,
        Outputs,
        Sizes,
        Way,
        refuse_idle,
        refuse_no_export,
        refuse_nothing_to_split,
    )
    from trainplan.costmodel.base import PlanError, SpecError, UnsupportedError
    from trainplan.costmodel.program import Program, Shape
    from trainplan.planner.runtimes import program_of_csv, what_torch_lacks
    from trainplan.planner.schedules import (
        HoldsTooMuchError,
        Pipeline,
        Ranking,
        Scored,
        imported,
        ranked,
        scheduled,
        synthesised,
        vpp_of,
    )
    from trainplan.planner.solvers import MISSING, constraint_solver_is_there


SYNTHESIS_SECONDS = 30.0
LARGEST = 1 << 30
way_options = gathered(
    "way",
    "trainplan.cli.values.schedule:way",
    (
        click.option(
            "--kind",
            metavar="KIND",
            shell_complete=completions.names((*names.SCHEDULES, "all")),
            cls=parameters.listing(names.SCHEDULES),
            help="Published schedule (names below), or all of them.",
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
_COUNT = parameters.Whole(LARGEST)
size_options = gathered(
    "sizes",
    "trainplan.cli.values.schedule:Sizes",
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


Stated = Callable[..., None]


def _duration(name: str, text: str, default: float | None = None) -> Callable[[Stated], Stated]:
    """An option whose value is a duration in any unit."""
    return click.option(
        name, type=parameters.FloatRange(0), default=default, metavar="TIME", help=text
    )


duration_options = gathered(
    "durations",
    "trainplan.cli.values.schedule:Durations",
    (
        _duration("--forward", "Duration of a virtual stage's forward pass.  [default: 1]"),
        _duration("--input-grad", "Duration of its input gradient.  [default: 1]"),
        _duration("--weight-grad", "Duration of its weight gradient.  [default: 1]"),
        _duration("--p2p", "Latency of a message between ranks; no rank is busy with it.", 0.0),
        click.option(
            "--stage-times",
            type=PATH,
            help="File with forward, input_grad and weight_grad of every virtual stage instead.",
        ),
        click.option(
            "--attention-share",
            type=parameters.FloatRange(0, 1),
            default=0.0,
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
def command(
    way: Way, sizes: Sizes, durations: Durations, outputs: Outputs, time_limit: float
) -> None:
    """Time and proof of a pipeline schedule.

    Durations are those of one micro batch through one virtual stage, in any unit. Prints the
    makespan, how far it is from the best possible, the timeline and the activations held. With
    `--kind all` the schedules that run with this vpp are ranked, and files hold the fastest, with
    `--csv` the fastest that torch runs.
    """
    outputs.check()
    refuse_idle(way, sizes, durations)
    if outputs.csv:
        refuse_no_export(sizes, durations)
    if way.from_csv:
        _answer(*_scored_file(way, way.from_csv, sizes, durations), outputs)
        return
    shape = sizes.shape(way)
    pipeline = durations.pipeline(shape, split_backward=sizes.split_backward)
    refuse_nothing_to_split(way, pipeline)
    if way.kind == ALL:
        _answer_all(ranked(pipeline, sizes.placement), outputs)
    elif way.kind:
        _answer(scheduled(way.kind, pipeline, sizes.placement), pipeline, outputs)
    else:
        with Clock(time_limit) as clock:
            found = synthesised(pipeline, sizes.placement, clock)
        if not (found.optimal or constraint_solver_is_there()):
            remark(f"the best of rules of thumb, no solver looked for a better order: {MISSING}")
        _answer(found, pipeline, outputs)


def _answer(scored: Scored, pipeline: Pipeline, outputs: Outputs) -> None:
    outputs.write(scored.timeline)
    if outputs.as_json:
        show_json(ScheduleDocument.of(scored).json())
    else:
        width = max(page_width(), outputs.width or 0)
        show(*screen(scored, pipeline, outputs.width), width=width)


def _answer_all(ranking: Ranking, outputs: Outputs) -> None:
    if not ranking.schedules:
        raise _nothing_runs(ranking)
    _write_fastest(ranking, outputs)
    if outputs.as_json:
        show_json(RankingDocument.of(ranking).json())
    else:
        show(*screen(ranking))


def _write_fastest(ranking: Ranking, outputs: Outputs) -> None:
    """Write the fastest schedule, or with `--csv` the fastest that torch runs, and name which."""
    first = ranking.schedules[0]
    if not outputs.csv:
        outputs.write(first.timeline)
        return
    runs = (one for one in ranking.schedules if not what_torch_lacks(one.program))
    found = next(runs, None)
    if found is None:
        raise UnsupportedError("torch's pipeline runtime runs none of these: leave --csv out")
    outputs.write(found.timeline)
    if found is not first:
        verb = "hold" if outputs.trace else "holds"
        remark(
            f"{' and '.join(map(str, outputs.paths))} {verb} {found.kind}, the fastest that torch "
            f"runs: {first.kind} has {what_torch_lacks(first.program)}"
        )


def _nothing_runs(ranking: Ranking) -> SpecError:
    memory_needs = [(one.needs, one.kind) for one in ranking.refused if one.needs]
    if not memory_needs:
        reasons = "; ".join(one.reason for one in ranking.refused)
        return SpecError(f"no schedule runs in this shape: {reasons}")
    needs, kind = min(memory_needs)
    return SpecError(
        f"no schedule runs with this memory: the one of least memory, {kind}, needs --memory-limit "
        f"{needs}; --synthesise looks for others"
    )


def _read(path: Path) -> Program:
    try:
        return program_of_csv(read_text(path, expected="CSV"))
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error


def _scored_file(
    way: Way, path: Path, sizes: Sizes, durations: Durations
) -> tuple[Scored, Pipeline]:
    """The schedule of a file on the clock, and what it is scored for."""
    program = _read(path)
    pipeline = _pipeline_of(program, sizes, durations)
    refuse_nothing_to_split(way, pipeline, program)
    try:
        return imported(program, pipeline), pipeline
    except HoldsTooMuchError as error:
        raise SpecError(
            f"{path}: the schedule holds more than --memory-limit {sizes.memory_limit}: raise it "
            f"to {error.needs}, the smallest the schedule runs with, or let --synthesise look for "
            "another"
        ) from error


def _pipeline_of(program: Program, sizes: Sizes, durations: Durations) -> Pipeline:
    """What is stated of a program that a file holds; sizes must agree with it."""
    vpp = vpp_of(program)
    found = {"pp": program.pp, "vpp": vpp, "num_microbatches": program.num_microbatches}
    for name, value in found.items():
        stated = getattr(sizes, name)
        if stated not in (None, value):
            option = f"--{name.replace('_', '-')}"
            raise SpecError(f"{option} is {stated}, the file has {value}: leave {option} out")
    for name in ("microbatch_group_size", "sequence_chunks"):
        if getattr(sizes, name) not in (None, 1):
            raise PlanError(f"--{name.replace('_', '-')} makes a schedule: leave it out")
    shape = Shape(program.pp, vpp, program.num_microbatches, memory_limit=sizes.memory_limit)
    return durations.pipeline(shape, stages=program.num_stages, split_backward=sizes.split_backward)

"""Options of `plan schedule` that would change nothing are refused."""

from collections.abc import Iterator, Mapping

import click

from trainplan.cli.values.schedule import ALL, Durations, Sizes, Way
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.program import Op, Program
from trainplan.costmodel.schedules import ONE_BARRIER, SCHEDULES, TWO_BARRIERS
from trainplan.planner.schedules import Pipeline, plain_program

SHARE_THE_OUTPUT_LAYER = tuple(
    kind for kind, schedule in SCHEDULES.items() if schedule in (ONE_BARRIER, TWO_BARRIERS)
)
"""Kinds whose ranks each run a share of the output layer."""


def refuse_idle(way: Way, sizes: Sizes, durations: Durations) -> None:
    """Refuse the first option that nothing would come of.

    Raises:
        UsageError: There is one; the message names what it belongs to.
    """
    idle = {**_idle_sizes(way, sizes), **_idle_durations(way, sizes, durations)}
    for message, found in idle.items():
        if found:
            raise click.UsageError(message)


def _idle_sizes(way: Way, sizes: Sizes) -> Mapping[str, bool]:
    wanted = sizes.placement
    schedule = SCHEDULES.get(way.kind or ALL)
    own = schedule.placement if schedule else wanted
    return {
        "--placement makes a schedule, and the file has one: leave it out": (
            wanted is not None and way.from_csv is not None
        ),
        f"{way.kind} places its stages in a {own}: leave --placement out": (
            wanted is not None and wanted != own
        ),
        "--placement v needs two virtual stages on a rank: give --vpp 2, or leave it out": (
            wanted == "v" and sizes.vpp == 1
        ),
        "--synthesise splits every backward pass: leave --split-backward out": (
            way.synthesise and sizes.split_backward
        ),
    }


def _idle_durations(way: Way, sizes: Sizes, durations: Durations) -> Mapping[str, bool]:
    shares = bool(durations.vocab_forward or durations.vocab_backward)
    kinds = ", ".join(SHARE_THE_OUTPUT_LAYER)
    return {
        "--offload-chunks selects what --offload copies: give --offload, or leave it out": (
            durations.offload_chunks is not None and not durations.offload
        ),
        f"--vocab-forward and --vocab-backward are for the kinds that share the output layer, "
        f"{kinds}: leave them out": shares and way.kind not in (*SHARE_THE_OUTPUT_LAYER, ALL),
        "--attention-share is for --sequence-chunks of 2 or more: give them, or leave it out": (
            durations.attention_share > 0 and sizes.sequence_chunks == 1
        ),
    }


def refuse_nothing_to_split(way: Way, pipeline: Pipeline, program: Program | None = None) -> None:
    """Refuse `--split-backward` where no backward pass is whole; `program` is that of a file.

    Raises:
        SpecError: There is none, or the schedule does not run in this shape.
    """
    if not pipeline.splits_backward:
        return
    kind = way.kind or ALL
    if kind in SCHEDULES and SCHEDULES[kind].splits_backward:
        program = plain_program(kind, pipeline)
    if program is not None and not (program.kind == Op.WHOLE).any():
        raise SpecError(
            f"{way.kind or 'the schedule'} has no whole backward pass to split: leave "
            "--split-backward out"
        )


def refuse_no_export(sizes: Sizes, durations: Durations) -> None:
    """Refuse `--csv` where torch runs no schedule with these options.

    Raises:
        UnsupportedError: An option is stated that torch's pipeline runtime does not know.
    """
    for option in _unknown_to_torch(sizes, durations):
        raise UnsupportedError(
            f"torch's pipeline runtime runs no schedule with {option}: leave --csv or {option} out"
        )


def _unknown_to_torch(sizes: Sizes, durations: Durations) -> Iterator[str]:
    if durations.offload:
        yield "--offload"
    if sizes.sequence_chunks > 1:
        yield "--sequence-chunks"

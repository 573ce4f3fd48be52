"""`plan verify`: a plan shrunk to a few processes, run and compared."""

from pathlib import Path

import click

from trainplan.cli.options import PLAN, PROFILE, OneOf, page, parameters
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import show
    from trainplan.cli.documents import VerifyEnded, VerifyRan, VerifyStarted, equal
    from trainplan.cli.files import load_measured
    from trainplan.cli.pages import verify_page
    from trainplan.cli.terminal import json_line, watched, write
    from trainplan.cli.trials import trainer_of
    from trainplan.cli.values import load_written, remark_change
    from trainplan.planner.documents import Written
    from trainplan.planner.verification import (
        Ran,
        combinations,
        exported_runs,
        start_exported,
        verify,
    )
    from trainplan.profiler.train import (
        CountedRuns,
        ScriptRuns,
        Trainers,
        lacking,
        need,
        refusing,
    )

UNEQUAL = 3
"""Exit code: neither bad input nor a bug."""


@page("verify", "plan verify plan.json --nproc 4")
@PLAN
@PROFILE
@click.option(
    "--nproc",
    type=OneOf("number of processes", ("2", "4", "8")),
    default="4",
    help="Processes of this machine.",
)
@click.option(
    "--steps",
    type=parameters.IntRange(1, 20),
    default=3,
    help="Steps that are trained and compared.",
)
@click.option(
    "--timeout",
    type=parameters.Seconds(1, 3600),
    default=300.0,
    help="Seconds after which a combination that has not ended is ended.",
)
@click.option(
    "--files/--no-files",
    default=True,
    help="Start what `plan export` writes for the runtime, too, on two processes of the CPU.",
)
@click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line.")
def command(
    plan: Path,
    profiles: tuple[Path, ...],
    nproc: str,
    steps: int,
    timeout: float,
    *,
    files: bool,
    as_json: bool,
) -> None:
    """Run a plan, shrunk to a few processes, and compare.

    PLAN is a file written by `plan search --output`. A tiny model of its kind is trained with
    megatron-core itself, or with torch's own FSDP2, DTensor and pipelining for plans of torchtitan,
    fsdp2 and accelerate, on GPUs over NCCL or on the CPU over gloo: what the plan uses, each by
    itself and together. Losses and gradient norms are compared with those of one process, weights,
    bytes sent and bytes kept of every rank with what the cost model counts; numbers of the file
    with those of this version. Where the plan's runtime is installed, the files that `plan export`
    writes for it are started for a tiny job, too, on the CPU, and their losses compared. Needs
    `pip install 'trainplan[train]'`. With --json, one object a line as it goes; the last has all.
    Exit code 3: something differs, or a rank was ended by a signal twice.
    """
    measured = load_measured(profiles)
    found = load_written(plan)
    changed = remark_change(plan, found, measured)
    trainer = trainer_of(found.job)
    need(trainer)
    request = combinations(found.job, found.layout, int(nproc), refusing(trainer))
    if as_json:
        write(json_line(VerifyStarted.of(request, int(nproc), trainer, changed).json()))
    ran = []
    with Trainers(trainer) as trainers:
        others = request.others if as_json else watched(request.others, "verifying")
        for one in verify(request.reference, others, CountedRuns(trainers, steps, timeout)):
            ran.append(one)
            if as_json:
                write(json_line(VerifyRan.of(one, event="ran").json()))
    started, not_started = _files(found, steps, timeout) if files else ([], ())
    if as_json:
        ended = VerifyEnded.of(ran, request.not_run, changed, started, not_started)
        write(json_line(ended.json()))
    else:
        show(*verify_page(ran, request, changed, started, not_started))
    if not equal((*ran, *started)):
        click.get_current_context().exit(UNEQUAL)


def _files(plan: Written, steps: int, timeout: float) -> tuple[list[Ran], tuple[str, ...]]:
    """Exported files that were started, and what was not, and why."""
    runs = exported_runs(plan.job, plan.layout, steps, lacking)
    return list(start_exported(runs, ScriptRuns(timeout))), runs.not_started

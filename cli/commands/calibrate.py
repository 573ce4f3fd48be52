"""`plan calibrate`: correct the estimate by measured steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from trainplan.cli.options import (
    FORCE,
    JSON,
    PATH,
    RUNTIME_OPTION,
    completions,
    gathered,
    global_batch_size,
    job_option,
    names,
    page,
    seq_length,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import show
    from trainplan.cli.files import (
        InvalidRun,
        load_measured,
        load_model,
        machines_of,
        read_log,
        read_runs,
    )
    from trainplan.cli.pages import log_line, screen
    from trainplan.cli.terminal import json_text, remark, write
    from trainplan.cli.values import Destination, parse_layout
    from trainplan.cli.words import gib
    from trainplan.costmodel.base import PlanError, SpecError
    from trainplan.costmodel.calibration import Measured, Observation, calibrate, kind_of, kinds_of
    from trainplan.costmodel.job import Job, Precision, RuntimeOptions, TrainingSpec
    from trainplan.costmodel.presets import gpu_intended
    from trainplan.costmodel.validate import observation_of
    from trainplan.planner.questions import estimate
    from trainplan.profiler.logs import StatedRun, observe

LISTED = 5
"""Runs left out that are named."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What ran, for the logs of `--log`; nothing is given for files of runs."""

    log: tuple[Path, ...]
    layout: tuple[str, ...]
    model: str | None
    cluster: str | None
    global_batch_size: int | None
    seq_length: int | None
    runtime_options: RuntimeOptions

    @property
    def job_is_given(self) -> bool:
        """Did the user give anything of a job?"""
        return replace(self, log=()) != LogOptions((), (), None, None, None, None, RuntimeOptions())


@dataclass(frozen=True, slots=True)
class RunSelection:
    """Kind of the runs."""

    gpu: str | None
    precision: Precision | None
    runtime: str | None


DEFAULT_PRECISION: Final = "bf16"
logged_options = gathered(
    "logged",
    "LogOptions",
    (
        click.option(
            "--log",
            multiple=True,
            type=PATH,
            help="Log of Megatron-LM, Megatron-Bridge, torchtitan, DeepSpeed, ArcticTraining, NeMo "
            "2 or our FSDP2 program; again, with its --layout, for another run of the job.",
        ),
        click.option(
            "--layout",
            multiple=True,
            metavar="LAYOUT",
            shell_complete=completions.LAYOUT,
            help="Layout of the log (`plan estimate`).",
        ),
        job_option("--model", "As in `plan search`."),
        job_option("--cluster", "As in `plan search`."),
        global_batch_size(required=False),
        seq_length(required=False),
        RUNTIME_OPTION,
    ),
)
chosen_options = gathered(
    "chosen",
    "RunSelection",
    (
        click.option(
            "--gpu",
            metavar="GPU",
            shell_complete=completions.GPU,
            help="Take only runs on this GPU.",
        ),
        job_option(
            "--precision", f"Of the log ({DEFAULT_PRECISION}); of a file of runs, take only those."
        ),
        job_option(
            "--runtime",
            f"Of the log ({names.DEFAULT_RUNTIME}); of a file of runs, take only those.",
        ),
    ),
)
PROFILE = click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=PATH,
    help="Correct these measurements of `plan profile` instead of the catalog; give them again "
    "where the calibration is used.",
)
OUTPUT = click.option(
    "--output",
    type=PATH,
    help="Write the calibration here (`--profile` of other commands reads it).",
)


@page(
    "calibrate",
    "plan calibrate --log train.log --model llama3-8b --cluster 1x8:h100-sxm \\",
    "  --global-batch-size 128 --seq-length 8192 --layout tp=2,sp=true \\",
    "  --output calibration.json",
)
@click.argument("files", nargs=-1, metavar="[RUNS.jsonl]...", type=PATH)
@logged_options
@chosen_options
@PROFILE
@gathered("destination", "trainplan.cli.values.stated:Destination", (OUTPUT, FORCE, JSON))
def command(
    files: tuple[Path, ...],
    profiles: tuple[Path, ...],
    logged: LogOptions,
    chosen: RunSelection,
    destination: Destination,
) -> None:
    """Correct the estimate by measured steps.

    Give either files of measured runs, one JSON object a line (`plan validate` reads them too), or
    the log of a training run and what ran. One step shows how fast the machine is; several, of
    different layouts, may separate network and fixed overhead.
    """
    destination.check()
    output = destination.output
    if output and any(output.resolve() == one.resolve() for one in (*files, *logged.log)):
        raise click.UsageError(f"{output} is read and would be replaced: choose another --output")
    if bool(files) == bool(logged.log):
        raise click.UsageError("give files of measured runs, or --log with what ran: one of both")
    if files and logged.job_is_given:
        raise click.UsageError("files of runs state what ran: leave --model to --layout out")
    measured = _measured(profiles)
    if files:
        observations = _from_files(files, chosen)
    else:
        observations, measured = _from_logs(logged, chosen, measured)
    calibration = calibrate(observations, measured.profile)
    text = json_text(calibration.document())
    destination.write(text)
    if destination.as_json:
        write(text)
    else:
        show(*screen(calibration, output))


def _measured(profiles: Sequence[Path]) -> Measured:
    """What `--profile` names.

    Raises:
        PlanError: As `load_measured`, or a calibration: one does not correct another.
    """
    measured = load_measured(profiles, alone=False)
    if measured.calibration:
        raise SpecError(
            "--profile holds a calibration, and one does not correct another: give files of "
            "`plan profile`"
        )
    return measured


def _from_files(files: Sequence[Path], chosen: RunSelection) -> tuple[Observation, ...]:
    if chosen.gpu is not None:
        chosen = replace(chosen, gpu=gpu_intended(chosen.gpu))
    records = [record for path in files for record in read_runs(path)]
    found: list[Observation] = []
    left_out: list[str] = []
    others: set[str] = set()
    for record in records:
        if isinstance(record, InvalidRun):
            left_out.append(f"{record.name}: {record.detail}")
            continue
        one = observation_of(record)
        if isinstance(one, str):
            left_out.append(f"{record.id}: {one}")
        elif _wanted(one, chosen):
            found.append(one)
        else:
            others.add(str(kind_of(one)))
    if left_out:
        more = f"; and {len(left_out) - LISTED} more" if len(left_out) > LISTED else ""
        shown = "; ".join(left_out[:LISTED])
        remark(f"left out {len(left_out)} of {len(records)} runs: {shown}{more}")
    if not found and others:
        raise SpecError(
            f"{files[0]}: no run of that kind; there are runs of {', '.join(sorted(others))}"
        )
    if not found:
        raise SpecError(f"{files[0]}: no run to calibrate on: correct what the line above names")
    kinds = kinds_of(found)
    if len(kinds) > 1:
        listed = ", ".join(f"{kind} ({len(group)})" for kind, group in kinds.items())
        raise SpecError(
            "one calibration is of one GPU, precision and runtime, the runs are of "
            f"{listed}: choose with --gpu, --precision and --runtime"
        )
    return tuple(found)


def _wanted(one: Observation, chosen: RunSelection) -> bool:
    kind = kind_of(one)
    return (
        chosen.gpu in (None, kind.gpu)
        and chosen.precision in (None, kind.precision)
        and chosen.runtime in (None, kind.runtime)
    )


def _from_logs(
    logged: LogOptions, chosen: RunSelection, measured: Measured
) -> tuple[tuple[Observation, ...], Measured]:
    """Steps of the logs, and what was measured with a profile that `--cluster` may name."""
    if chosen.gpu is not None:
        raise click.UsageError("--gpu chooses among runs of a file; the log's is in --cluster")
    job, whole = _job(logged, chosen, measured)
    if len(logged.layout) != len(logged.log):
        raise click.UsageError(
            f"{len(logged.log)} --log and {len(logged.layout)} --layout: give one for each log"
        )
    runs = zip(logged.log, logged.layout, strict=True)
    return tuple(_observed(path, job, layout) for path, layout in runs), whole


def _job(logged: LogOptions, chosen: RunSelection, measured: Measured) -> tuple[Job, Measured]:
    batch, length = logged.global_batch_size, logged.seq_length
    if logged.model is None or logged.cluster is None or batch is None or length is None:
        raise click.UsageError(
            "--log needs --model, --cluster, --global-batch-size, --seq-length and --layout"
        )
    training = TrainingSpec(
        seq_length=length, global_batch_size=batch, precision=chosen.precision or DEFAULT_PRECISION
    )
    cluster, whole = machines_of(logged.cluster, measured)
    job = Job(
        model=load_model(logged.model),
        training=training,
        cluster=cluster,
        runtime=chosen.runtime or names.DEFAULT_RUNTIME,
        options=logged.runtime_options,
    )
    return job, whole


def _observed(path: Path, job: Job, text: str) -> Observation:
    layout = parse_layout(text, job.cluster)
    memory = estimate(job, layout).memory
    training = job.training
    request = StatedRun(training.global_batch_size, training.seq_length, job.cluster.num_gpus)
    try:
        seen = observe(read_log(path), request)
    except PlanError as error:
        message = str(error)
        prefix = "" if message.startswith(str(path)) else f"{path}: "
        raise type(error)(f"{prefix}{message}") from error
    remark(f"{path}: {log_line(seen)}")
    if seen.only_runtime not in (None, job.runtime):
        remark(
            f"{path} is a log of {seen.only_runtime}, priced as {job.runtime}: "
            f"add --runtime {seen.only_runtime}"
        )
    if memory.headroom_bytes < 0:
        remark(
            f"{path}: by the model, layout {text!r} needs {gib(-memory.headroom_bytes)} GiB more "
            "than a GPU has: is it the layout of this run?"
        )
    source = (
        f"median of {seen.num_lines} log lines after {seen.num_warm_up} of warm-up, {seen.format}"
    )
    return Observation(path.name, source, job, layout, seen.step_time_s)

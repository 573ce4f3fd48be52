"""`plan check`: someone's launch read, checked and improved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from trainplan.cli.options import (
    FORCE,
    JSON,
    PATH,
    PROFILE,
    TRAIN,
    global_batch_size,
    job_option,
    memory_margin,
    node_options,
    page,
    seq_length,
    time_limit,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import CheckDocument
    from trainplan.cli.files import (
        load_measured,
        load_model,
        machines_of,
        refuse_existing,
        write_text,
    )
    from trainplan.cli.pages import screen
    from trainplan.cli.processes import Processes
    from trainplan.cli.terminal import Clock, remark
    from trainplan.cli.values import (
        alongside,
        model_next_to,
        parse_settings,
        read_launches,
        text_next_to,
    )
    from trainplan.costmodel.base import SpecError, UnsupportedError
    from trainplan.costmodel.calibration import Measured
    from trainplan.costmodel.hardware import ClusterSpec
    from trainplan.costmodel.job import with_trained
    from trainplan.planner.launch_checks import LaunchCheck, check_launch
    from trainplan.planner.operations import with_saves_read
    from trainplan.planner.plan import SearchOptions
    from trainplan.planner.questions import notes
    from trainplan.planner.runtimes import EXPORTERS, Reader, Request, corrected_script, readers
    from trainplan.planner.shell import Launch

SHOWN = 5
"""Programs that an error names."""


@page(
    "check",
    "plan check train.sh --cluster 8x8:h100-sxm",
    "  plan check -- torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 ...",
)
@click.argument("launch", nargs=-1, required=True, metavar="FILE | -- COMMAND...")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a variable that the script takes from elsewhere, again for more.",
)
@job_option(
    "--cluster",
    "As in `plan search`.  [default: the GPUs it names, else h100-sxm, as many as its ranks]",
)
@node_options
@job_option("--model", "For launches that name no shape: as in search.")
@TRAIN
@seq_length(required=False, text="Tokens per sequence, for launches that do not state it")
@global_batch_size(required=False, text="Sequences per step, for launches that do not state it")
@job_option("--runtime", "Runtime of the launch, where its program does not show it.")
@click.option(
    "--runtime-version",
    metavar="VERSION",
    help="As in search; else that of a container image which the launch names.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="What is not stated is this release's default; an option that it does not know is "
    "refused.",
)
@PROFILE
@memory_margin(0.0)
@time_limit(10.0, "Look for a better layout until then.")
@click.option("--write", type=PATH, help="Write the corrected command, or configuration, here.")
@FORCE
@JSON
def command(
    launch: tuple[str, ...],
    *,
    settings: tuple[str, ...],
    cluster: str | None,
    with_stated: Callable[[ClusterSpec], ClusterSpec],
    model: str | None,
    train: str | None,
    seq_length: int | None,
    global_batch_size: int | None,
    runtime: str | None,
    runtime_version: str | None,
    strict: bool,
    profiles: tuple[Path, ...],
    memory_margin: float,
    time_limit: float,
    write: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Check a launch you have; list the edits that pay.

    FILE is a launch script, with the arguments it is given, or a configuration of a trainer, or a
    manifest with a command in it. It prints if the launch runs, fits and what it costs, and what it
    does not know. Nothing is executed: what is known to a run alone is named, with its line.
    """
    if write:
        refuse_existing(write, force=force)
    machines, measured = _machines(cluster, profiles)
    request = Request(
        cluster=machines,
        model=with_trained(load_model(model), train) if model else None,
        model_of=partial(model_next_to, alongside(launch)),
        train=train,
        seq_length=seq_length,
        global_batch_size=global_batch_size,
        release=runtime_version,
        strict=strict,
        text_of=partial(text_next_to, alongside(launch)),
    )
    own, reader = _chosen(read_launches(launch, parse_settings(settings)), runtime)
    reading = reader.read(own, request.over(own)).of_release(own, runtime_version)
    if reading.job:
        machines = with_stated(reading.job.cluster)
        job = reading.job.model_copy(update={"cluster": machines})
        reading = replace(reading, job=job)
    reading = with_saves_read(own, reading)
    if train and not model and not any(one.name == "model.trained" for one in reading.fields):
        raise SpecError("--train needs --model: this launch does not state what is trained")
    options = SearchOptions(memory_margin=memory_margin, only_written=False)
    with Clock(time_limit) as clock, Processes(None) as processes:
        found = check_launch(reading, options, clock, measured, processes)
    stated = notes(reading.job, measured) if found.estimate and reading.job else ()
    document, page = CheckDocument.of(found, stated).json(), screen(found, stated)
    answer(document, page, as_json=as_json, found=found)
    if write:
        write_text(write, _corrected(own, found, launch), force=force)
        remark(f"wrote {write}")


def _machines(
    cluster: str | None, profiles: tuple[Path, ...]
) -> tuple[ClusterSpec | None, Measured]:
    measured = load_measured(profiles, alone=False)
    return (None, measured) if cluster is None else machines_of(cluster, measured)


def _chosen(launches: tuple[Launch, ...], runtime: str | None) -> tuple[Launch, Reader]:
    """The first launch that some reader knows.

    Raises:
        UnsupportedError: None does.
    """
    known = [one for one in readers() if runtime in (None, one.runtime)]
    if not known:
        names = ", ".join(dict.fromkeys(one.runtime for one in readers()))
        raise UnsupportedError(f"no launch of {runtime} is read: --runtime takes {names}")
    if runtime and len(launches) == 1:
        own = next((one for one in known if one.recognises(launches[0])), known[-1])
        return launches[0], own
    for launch in launches:
        for reader in known:
            if reader.recognises(launch):
                return launch, reader
    if launches[0].document:
        keys = ", ".join(list(launches[0].document)[:SHOWN])
        raise UnsupportedError(
            f"{launches[0].program.text[:80]} is of no format that is known (its keys: "
            f"{keys[:200]}): give the command that reads it, or its settings to `plan search`"
        )
    if launches[0].alone:
        raise UnsupportedError(
            f"{launches[0].program.text[:80]} holds no keys that can be read (a template, or no "
            "mapping): give what it is rendered to, or the command that reads it"
        )
    trains = [one for one in launches if one.starter != "python"] or launches
    programs = ", ".join(list(dict.fromkeys(one.program.text[:60] for one in trains))[:SHOWN])
    names = ", ".join(dict.fromkeys(one.runtime for one in readers()))
    raise UnsupportedError(
        f"no runtime is known to start {programs}: where it is one of {names}, name it with "
        "--runtime; a trainer of its own is priced by `plan search --model NAME --cluster "
        "NODESxGPUS:GPU --seq-length N --global-batch-size N`, with its model, length and batch"
    )


def _corrected(launch: Launch, found: LaunchCheck, words: tuple[str, ...]) -> str:
    """The launch with the fewest edits: its command, or the configuration it reads.

    Raises:
        SpecError: There is nothing to correct it by.
    """
    if not found.edits or found.reading.layout is None or found.reading.job is None:
        raise SpecError("--write: no edits were found, so there is nothing to write")
    if any(problem.cause == "foreign_format" for problem in found.reading.problems):
        raise SpecError(
            "--write: files of other projects are not written: make the edits in theirs"
        )
    edit = found.edits[0]
    changes = edit.settings
    config = EXPORTERS[found.reading.runtime](edit.run.job, edit.run.layout)
    if config.keys or not changes:
        if not config.files:
            raise SpecError("--write: the launch breaks rules, so it has no words to correct")
        return config.files[0].text
    name = " ".join(words[:1]) if len(words) == 1 else "a command"
    head = (
        f"{name}, corrected by `plan check`: {', '.join(edit.units)} changed",
        f"{edit.step_time_s:.4g} s a step under the cost model",
    )
    return corrected_script(launch, changes, config.environment, head)

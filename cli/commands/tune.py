"""`plan tune`: run the likeliest layouts until no other is likely to be faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from trainplan.cli.files.documents import read_json
from trainplan.cli.files.inputs import load_model
from trainplan.cli.files.measuring import measured_here
from trainplan.cli.files.profiles import load_measured, profile_text
from trainplan.cli.files.trial_launches import (
    Exported,
    InProcesses,
    TrialLauncher,
    check_gpus_here,
    on_paper,
)
from trainplan.cli.files.tuning_folder import TuningFolder, free_folder
from trainplan.cli.options.stated import Question, question
from trainplan.cli.render.tune import finished_page, progress_line
from trainplan.cli.terminal.output import json_line, remark, show, write
from trainplan.cli.terminal.progress import TaskBar
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.measured import Measured
from trainplan.costmodel.spec import Job, RuntimeOptions
from trainplan.costmodel.spec.job import DEFAULT_RUNTIME, Precision
from trainplan.planner.plan import Infeasible, SearchOptions, plan_json
from trainplan.planner.plan.written import written
from trainplan.planner.questions.placement import node_order
from trainplan.planner.questions.search import search
from trainplan.planner.tuning.events import Finished, TrialEnded
from trainplan.planner.tuning.loop import Start, tune
from trainplan.planner.tuning.options import TuneOptions
from trainplan.profiler.launch.launch import Files, Launch, default_nproc, num_gpus
from trainplan.profiler.launch.requests import device_of, request_for
from trainplan.profiler.train.client import Trainers
from trainplan.profiler.trials.ways import WAYS, template

MICRO_BATCHES = 4
"""Sequences of a step for each process, where nobody says."""
LISTED = 30
"""Alternatives of a search that are contenders in any case."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is trained where no plan says it."""

    model: str | None
    cluster: str | None
    global_batch_size: int | None
    seq_length: int | None
    precision: Precision | None
    runtime: str | None
    runtime_options: RuntimeOptions
    profiles: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """How trials are launched."""

    nproc: int | None
    launcher: str | None
    template: str | None
    simulate: Path | None


@dataclass(frozen=True, slots=True)
class Limits:
    """When it ends."""

    trials: int
    budget: float | None
    steps: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the trials are kept."""

    output_dir: Path | None
    resume: bool
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """What is tuned: a job, its plan, and what is known of the machine."""

    job: Job
    text: str
    """The plan's document."""
    start: Start
    search: SearchOptions
    measured: Measured
    order: tuple[str, ...] = ()


def command(
    plan: Path | None, asked: Asked, way: Way, limits: Limits, kept: Kept, *, as_json: bool
) -> None:
    """Tune, and print what was measured and what remains possible."""
    _check(plan, asked, way, kept)
    with _folder(plan, asked, kept) as folder:
        begin = _of_plan(plan, asked) if plan else _of_search(asked, way, folder)
        with _launcher(begin, way, limits, folder.path) as launcher:
            if kept.dry_run:
                _show_commands(begin, launcher, limits)
                return
            found = _run(begin, launcher, limits, folder, as_json=as_json)
        folder.write_result(begin.text, found)
    if not as_json:
        show(*finished_page(begin.job, found, folder.path))
    if found.best is None:
        click.get_current_context().exit(NOTHING_MEASURED)


def _run(
    begin: Begin, launcher: TrialLauncher, limits: Limits, folder: TuningFolder, *, as_json: bool
) -> Finished:
    """Go through the events, telling each, until the last."""
    options = TuneOptions(trials=limits.trials, seconds=limits.budget, search=begin.search)
    events = tune(
        begin.job,
        folder.kept(launcher.launch),
        options,
        start=begin.start,
        measured=begin.measured,
        earlier=folder.earlier(),
        can_run=launcher.can_run,
    )
    for event in events:
        if as_json:
            write(json_line(event.model_dump(mode="json")))
        elif line := progress_line(begin.job, event):
            remark(line)
        if isinstance(event, Finished):
            return event
    raise AssertionError("the last event is the result")


def _check(plan: Path | None, asked: Asked, way: Way, kept: Kept) -> None:
    """Do the options go together?

    Raises:
        click.UsageError: They do not.
    """
    stated = asked != Asked(None, None, None, None, None, None, RuntimeOptions(), asked.profiles)
    if plan and stated:
        raise click.UsageError("PLAN says what is trained: leave --model to --option out")
    if not plan and asked.model is None:
        raise click.UsageError("give PLAN, a file of `plan search --output`, or --model")
    ways = [
        name
        for name, given in (
            ("--nproc", way.nproc),
            ("--launcher", way.launcher),
            ("--simulate", way.simulate),
        )
        if given is not None
    ]
    if len(ways) > 1:
        raise click.UsageError(f"{ways[0]} and {ways[1]} start trials in two ways: give one")
    if (way.launcher == COMMAND) != (way.template is not None):
        raise click.UsageError("--launcher command and --command TEMPLATE go together")
    if kept.resume and kept.output_dir is None:
        raise click.UsageError("--resume needs the --output-dir of the run that goes on")


@contextmanager
def _folder(plan: Path | None, asked: Asked, kept: Kept) -> Iterator[TuningFolder]:
    if kept.output_dir is None:
        name = plan.stem if plan else load_model(asked.model or "").name
        path = free_folder(f"tune-{name}")
    else:
        path = kept.output_dir
    with TuningFolder(path, resume=kept.resume, dry_run=kept.dry_run) as folder:
        if kept.output_dir is None and not kept.dry_run:
            remark(f"trials are kept in {path}: `--output-dir {path} --resume` goes on there")
        yield folder


def _of_plan(path: Path, asked: Asked) -> Begin:
    text, _ = read_json(path)
    found = written(text)
    start = Start(found.job, (found.layout, *found.candidates))
    measured = load_measured(asked.profiles)
    order = node_order(text, found.job.cluster)
    return Begin(found.job, text, start, found.options, measured, order)


def _of_search(asked: Asked, way: Way, folder: TuningFolder) -> Begin:
    """Search first, on this machine where no other is named."""
    stated = _question(asked, way, folder)
    options = SearchOptions(top=LISTED, search_options="none" if way.nproc else "safe")
    found = search(stated.job, options, measured=stated.measured)
    if isinstance(found, Infeasible):
        raise SpecError(
            "no layout of the job fits: `plan search` with the same options says why and what helps"
        )
    text = json_text(plan_json(found))
    start = Start(found.job, tuple(one.layout for one in found.candidates))
    return Begin(stated.job, text, start, options, stated.measured)


def _question(asked: Asked, way: Way, folder: TuningFolder) -> Question:
    """The job of `--model` to `--profile`; in processes, what is not said has a default."""
    assert asked.model is not None, "checked before"
    model = load_model(asked.model)
    cluster, batch, length = asked.cluster, asked.global_batch_size, asked.seq_length
    precision, options = asked.precision or "bf16", asked.runtime_options
    if way.nproc:
        batch = batch or MICRO_BATCHES * way.nproc
        length = length or model.max_position_embeddings
        device = device_of(num_gpus())
        precision = asked.precision or ("fp32" if device == "cpu" else "bf16")
        options = RuntimeOptions.model_validate({**AS_TRAINED, **options.stated()})
        cluster = cluster or str(_measured_machine(asked, way.nproc, length, precision, folder))
    if cluster is None or batch is None or length is None:
        raise click.UsageError(
            "--model needs --cluster, --global-batch-size and --seq-length; or --nproc, which "
            "trains in processes of this machine and measures it first"
        )
    stated = question(
        model=asked.model,
        cluster=cluster,
        global_batch_size=batch,
        seq_length=length,
        lengths=None,
        packing=None,
        precision=precision,
        optimizer="adamw",
        state_precision="o0",
        tokens=None,
        train=None,
        loss_tokens=1.0,
        runtime=asked.runtime or DEFAULT_RUNTIME,
        runtime_version=None,
        runtime_options=options,
        reserve_bytes=0,
        reserve_host_bytes=0,
        profiles=asked.profiles,
    )
    gpus = stated.job.cluster.num_gpus
    if way.nproc and gpus != way.nproc:
        raise SpecError(f"--nproc {way.nproc}, but the cluster has {gpus} devices: make them equal")
    return stated


def _measured_machine(
    asked: Asked, nproc: int, length: int, precision: Precision, folder: TuningFolder
) -> Path:
    """A quick profile of this machine, measured once for a folder."""
    path = folder.profile
    if path.exists():
        return path
    if folder.dry_run:
        raise SpecError(
            f"--dry-run: this machine would be measured first, as `plan profile --quick "
            f"--nproc-per-node {nproc}` does: do that, and give its file as --cluster"
        )
    gpus = num_gpus()
    stated = {"seq_length": length, "precision": precision}
    model = load_model(asked.model or "")
    request = request_for(model, device_of(gpus), nproc, quick=True, stated=stated)
    remark(f"measuring this machine with {nproc} processes first, once for this folder")
    with TaskBar("measuring") as bar:
        profile = measured_here(request, Launch(nproc), Files.beside(path), bar, gpus)
    assert profile is not None, "there is one node"
    folder.write_profile(profile_text(profile))
    return path


@contextmanager
def _launcher(begin: Begin, way: Way, limits: Limits, folder: Path) -> Iterator[TrialLauncher]:
    """The way trials are started; what it holds open is closed at the end."""
    if way.simulate:
        yield on_paper(way.simulate, begin.measured)
    elif way.nproc:
        if way.nproc != begin.job.cluster.num_gpus:
            gpus = begin.job.cluster.num_gpus
            raise SpecError(f"--nproc {way.nproc}, but the plan is for {gpus} devices")
        with Trainers("megatron-core") as trainers:
            yield InProcesses(trainers, way.nproc, limits.steps, limits.timeout)
    elif way.template:
        start = template(way.template)
        yield Exported(folder, "torchrun", start, limits.steps, limits.timeout, elsewhere=True)
    else:
        name = way.launcher or "torchrun"
        if name == "torchrun":
            check_gpus_here(begin.job)
        start = WAYS["local" if name == "torchrun" else name]
        yield Exported(folder, name, start, limits.steps, limits.timeout, begin.order)


def _show_commands(begin: Begin, launcher: TrialLauncher, limits: Limits) -> None:
    """Commands of the trials, if none of them taught anything."""
    layouts = [one for one in begin.start.layouts if launcher.can_run(begin.start.chosen, one)]
    for number, layout in enumerate(dict.fromkeys(layouts), start=1):
        if number > limits.trials:
            return
        trial = Trial(number=number, job=begin.start.chosen, layout=layout, why="dry run")
        write(f"# trial {number}, if no trial before it taught anything: {short_layout(layout)}\n")
        write("".join(f"{text}\n" for text in launcher.commands(trial)))

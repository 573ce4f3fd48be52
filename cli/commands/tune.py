"""`plan tune`: run the likeliest layouts until no other is likely to be faster."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from trainplan.cli.options import (
    PATH,
    PROFILE,
    RUNTIME_OPTION,
    OneOf,
    gathered,
    global_batch_size,
    job_option,
    names,
    page,
    parameters,
    report_options,
    seq_length,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import show
    from trainplan.cli.files import errors_of, load_measured, read_json, read_model
    from trainplan.cli.pages import progress_line, screen
    from trainplan.cli.terminal import json_line, json_text, remark, write
    from trainplan.cli.trials import PROFILE as PROFILE_FILE
    from trainplan.cli.trials import (
        Exported,
        InProcesses,
        Kept,
        Limits,
        Request,
        TrialLauncher,
        TuningFolder,
        Way,
        check_gpus_here,
        check_processes_stand_for,
        free_folder,
        on_paper,
        remark_load,
        trainer_of,
        tuned_question,
    )
    from trainplan.cli.values import ReportFile
    from trainplan.cli.words import layout_line
    from trainplan.costmodel.base import SpecError, UnsupportedError
    from trainplan.costmodel.calibration import Measured
    from trainplan.costmodel.documents import Trial
    from trainplan.costmodel.job import Job, RuntimeOptions
    from trainplan.planner.documents import plan_json, written
    from trainplan.planner.plan import NO_EXPORT, Infeasible, SearchOptions
    from trainplan.planner.questions import node_order, search
    from trainplan.planner.tuning import LISTED, Finished, Start, TuneOptions, exports, tune
    from trainplan.profiler.train import Trainers
    from trainplan.profiler.trials import BACKENDS, template

NOTHING_MEASURED = 2
"""Exit code: no trial was measured."""
COMMAND = "command"
TRIAL_LAUNCHERS = ("torchrun", "slurm", COMMAND)
"""Values of `--launcher`."""


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


REQUEST = (
    job_option("--model", "As in `plan search`, in place of PLAN."),
    job_option(
        "--cluster",
        "As in `plan search`. [default: this machine; with --nproc it is measured first]",
    ),
    global_batch_size(required=False),
    seq_length(required=False),
    job_option(
        "--precision",
        "Number format of the matrix products. [default: bf16, in processes of a CPU fp32]",
    ),
    job_option("--runtime", f"As in `plan search`. [default: {names.DEFAULT_RUNTIME}]"),
    RUNTIME_OPTION,
    PROFILE,
)
WAY = (
    click.option(
        "--nproc",
        type=parameters.IntRange(1, 64),
        metavar="N",
        help="Train in N processes of this machine, as `plan verify` does, without launch files.",
    ),
    click.option(
        "--launcher",
        type=OneOf("launcher", TRIAL_LAUNCHERS),
        help="What starts a trial: torchrun runs run.sh here, slurm submits run.sbatch, command "
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
        help="What ends a trial of --command elsewhere: 'ssh head pkill -f {folder}/{script}'.",
    ),
    click.option(
        "--simulate",
        type=PATH,
        metavar="MACHINE.json",
        help="Launch nothing: a simulated machine with hidden constants, faults and noise.",
    ),
)
LIMITS = (
    click.option(
        "--trials",
        type=parameters.IntRange(1, 1000),
        default=8,
        help="At most so many; one that is repeated after a lost node counts once.",
    ),
    click.option(
        "--budget",
        callback=parameters.second_count,
        metavar="DURATION",
        help="Start no trial once trials took so long: 30m, 2h.",
    ),
    click.option(
        "--steps",
        type=parameters.IntRange(2, 10_000),
        default=10,
        help="Steps that are timed after a warm-up of two; up to twice as many if they are uneven.",
    ),
    click.option(
        "--timeout",
        callback=parameters.second_count,
        default="15m",
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
@gathered("request", "trainplan.cli.trials.question:Request", REQUEST)
@gathered("way", "trainplan.cli.trials.question:Way", WAY)
@gathered("limits", "trainplan.cli.trials.question:Limits", LIMITS)
@gathered("kept", "trainplan.cli.trials.question:Kept", KEPT)
@report_options
@click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line.")
def command(
    plan: Path | None,
    request: Request,
    way: Way,
    limits: Limits,
    kept: Kept,
    *,
    report: ReportFile,
    as_json: bool,
) -> None:
    """Find the fastest layout by running the likeliest ones.

    PLAN is a file written by `plan search --output`; without it, --model and --cluster are searched
    first. Each trial corrects the cost model, which chooses the next one. Ends when with 90 %
    probability no other layout is faster by more than 1 %, or when the budget is spent.
    """
    report.check()
    _check(plan, request, way, kept)
    path = kept.output_dir or free_folder(f"tune-{_name(plan, request)}")
    if kept.dry_run:
        begin = (
            _of_plan(plan, request)
            if plan
            else _of_search(request, way, path / PROFILE_FILE, dry=True)
        )
        with _launcher(begin, way, limits, path) as launcher:
            _show_commands(begin, launcher, limits)
        return
    with TuningFolder(path, resume=kept.resume) as folder:
        try:
            begin = _of_plan(plan, request) if plan else _of_search(request, way, folder.profile)
            with _launcher(begin, way, limits, path) as launcher:
                if isinstance(launcher, Exported):
                    _check_export(launcher, begin)
                found = _run(begin, launcher, limits, folder, as_json=as_json)
        except KeyboardInterrupt:
            remark(f"stopped; nothing runs on, and trials that ended are kept in {path}")
            raise
        tuned = folder.write_result(begin.text, found, begin.measured)
    if not as_json:
        exported = found.best is not None and exports(begin.job, found.best.layout)
        show(*screen(found, begin.job, path, exported=exported))
    report.write(tuned)
    if found.best is None:
        click.get_current_context().exit(NOTHING_MEASURED)


def _run(
    begin: Begin, launcher: TrialLauncher, limits: Limits, folder: TuningFolder, *, as_json: bool
) -> Finished:
    """Go through the events, printing each, until the last."""
    options = TuneOptions(trials=limits.trials, seconds=limits.budget, search=begin.search)
    earlier, launch = folder.trials(begin.job, launcher.launch, launcher.ran_by)
    remark(f"trials are kept in {folder.path}: `--output-dir {folder.path} --resume` goes on there")
    events = tune(
        begin.job,
        launch,
        options,
        start=begin.start,
        measured=begin.measured,
        earlier=earlier,
        can_start=launcher.can_start,
    )
    for event in events:
        if as_json:
            write(json_line(event.model_dump(mode="json")))
        elif line := progress_line(begin.job, event):
            remark(line)
        if isinstance(event, Finished):
            return event
    raise AssertionError("the last event is the result")


def _check(plan: Path | None, request: Request, way: Way, kept: Kept) -> None:
    """Do the options go together?

    Raises:
        click.UsageError: They do not.
    """
    stated = request != Request(
        None, None, None, None, None, None, RuntimeOptions(), request.profiles
    )
    if plan and stated:
        raise click.UsageError("PLAN states what is trained: leave --model to --option out")
    if not plan and request.model is None:
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
    if way.stop_command is not None and way.template is None:
        raise click.UsageError("--stop-command ends what --launcher command started: give that too")
    if kept.resume and kept.output_dir is None:
        raise click.UsageError("--resume needs the --output-dir of the run that goes on")


def _name(plan: Path | None, request: Request) -> str:
    return plan.stem if plan else read_model(request.model or "").model.name


def _of_plan(path: Path, request: Request) -> Begin:
    text, document = read_json(path)
    with errors_of(path):
        if document.values.get("apart"):
            raise UnsupportedError(NO_EXPORT)
        found = written(text)
    if found.objective != "time":
        remark(f"{path} is of --objective {found.objective}: it is tuned for the shortest step")
    start = Start(found.job, (found.layout, *found.candidates))
    measured = load_measured(request.profiles)
    order = node_order(text, found.job.cluster)
    return Begin(found.job, text, start, found.options, measured, order)


def _of_search(request: Request, way: Way, profile: Path, *, dry: bool = False) -> Begin:
    """Search first, on this machine where no other is named."""
    stated = tuned_question(request, way, profile, dry=dry)
    options = SearchOptions(top=LISTED, search_options="none" if way.nproc else "safe")
    found = search(stated.job, options, measured=stated.measured)
    if isinstance(found, Infeasible):
        raise SpecError(
            "no layout of the job fits: `plan search` with the same options shows why and what "
            "helps"
        )
    text = json_text(plan_json(found))
    return Begin(stated.job, text, Start.of(found), options, stated.measured)


@contextmanager
def _launcher(begin: Begin, way: Way, limits: Limits, folder: Path) -> Iterator[TrialLauncher]:
    """The way trials are started; what it holds open is closed at the end."""
    if way.simulate:
        yield on_paper(way.simulate, begin.measured)
    elif way.nproc:
        if way.nproc != begin.job.cluster.num_gpus:
            gpus = begin.job.cluster.num_gpus
            raise SpecError(f"--nproc {way.nproc}, but the plan is for {gpus} devices")
        check_processes_stand_for(begin.job)
        remark_load(way.nproc)
        with Trainers(trainer_of(begin.job)) as trainers:
            yield InProcesses(trainers, way.nproc, limits.steps, limits.timeout)
    elif way.template is not None:
        own = template(way.template, way.stop_command or "")
        run = limits.steps, limits.timeout
        yield Exported(folder, "torchrun", own, *run, elsewhere=True)
    else:
        name = way.launcher or "torchrun"
        if name == "torchrun":
            check_gpus_here(begin.job)
            remark_load(begin.job.cluster.num_gpus)
        start = BACKENDS["local" if name == "torchrun" else name]
        run = limits.steps, limits.timeout
        yield Exported(folder, name, start, *run, queue_s=limits.budget, order=begin.order)


def _check_export(launcher: Exported, begin: Begin) -> None:
    """Can trials be written? Nothing has been run yet.

    Raises:
        PlanError: As `Exported.check`.
    """
    job = begin.start.chosen
    for layout in begin.start.layouts:
        if exports(job, layout):
            return launcher.check(job, layout)


def _show_commands(begin: Begin, launcher: TrialLauncher, limits: Limits) -> None:
    """Commands of the trials, if none of them taught anything."""
    layouts = [one for one in begin.start.layouts if launcher.can_start(begin.start.chosen, one)]
    for number, layout in enumerate(dict.fromkeys(layouts), start=1):
        if number > limits.trials:
            return
        trial = Trial(number=number, job=begin.start.chosen, layout=layout, why="dry run")
        line = layout_line(layout, begin.job.model)
        write(f"# trial {number}, if no trial before it taught anything: {line}\n")
        write("".join(f"{text}\n" for text in launcher.commands(trial)))

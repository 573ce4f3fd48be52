"""`plan export`: from a plan to the script that starts the training."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
from click import UsageError, echo

from trainplan.cli.options import (
    CANDIDATE,
    FORCE,
    JSON,
    PATH,
    PLAN,
    OneOf,
    names,
    page,
    parameters,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from rich.console import RenderableType

    from trainplan.cli.blocks import answer, section, show
    from trainplan.cli.documents import FilesDocument
    from trainplan.cli.files import NewFile, errors_of, read_json, refuse_folder, write_folder
    from trainplan.cli.pages import notes_part
    from trainplan.cli.terminal import remark
    from trainplan.costmodel.base import SpecError, UnsupportedError, unknown_name
    from trainplan.costmodel.job import Job
    from trainplan.costmodel.layout import Layout
    from trainplan.costmodel.runtimes import RUNTIMES
    from trainplan.planner.documents import chosen_from_json, with_candidate, written
    from trainplan.planner.launch import LaunchConfig
    from trainplan.planner.launchers import FOLDER as TRIAL
    from trainplan.planner.launchers import HOSTFILE, LAUNCHERS, hostfile
    from trainplan.planner.launchers import launcher as launcher_named
    from trainplan.planner.launchers import one_rank as script_of_one_rank
    from trainplan.planner.launchers import trials as array_job
    from trainplan.planner.operations import checkpoint_note, saves_of, with_operations, with_saves
    from trainplan.planner.plan import NO_EXPORT
    from trainplan.planner.questions import check, no_cpu, no_files, node_order
    from trainplan.planner.runtimes import EXPORTERS, TRAINERS, KeyLines, key_lines

PLAN_FILE = "plan.json"
ADDITIONS = ("operations",)


@page("export", "plan export plan.json --launcher slurm --output-dir launch")
@PLAN
@CANDIDATE
@click.option(
    "--runtime",
    type=OneOf("runtime", names.EXPORTERS),
    show_default="the plan's own",
    metavar="RUNTIME",
    help=f"Training runtime whose options are written: {', '.join(names.EXPORTERS)}.",
)
@click.option(
    "--trainer",
    type=OneOf("trainer", names.TRAINERS),
    help="Write the files of this project, which trains on the plan's runtime, instead of the "
    "runtime's own.",
)
@click.option(
    "--launcher",
    type=OneOf("launcher", names.LAUNCHERS),
    default="torchrun",
    help="torchrun writes run.sh for every node (torchrun-c10d: nodes number themselves), slurm "
    "run.sbatch, mpi run_mpi.sh, kubernetes a TrainJob, pytorchjob a PyTorchJob, skypilot a task.",
)
@click.option(
    "--trials",
    type=parameters.IntRange(1, 1000),
    metavar="N",
    help="With slurm: an array job that tries the N best layouts of the plan, one after the other.",
)
@click.option(
    "--output-dir",
    type=PATH,
    help="New folder for the script, what it reads, and a copy of the plan.",
)
@click.option(
    "--keys",
    type=OneOf("project", names.KEY_TABLES),
    help="Print the plan as settings of this project over Megatron instead, and write nothing.",
)
@click.option(
    "--one-rank",
    type=parameters.IntRange(0, 1 << 30),
    metavar="RANK",
    help="Instead of a launch: run_one_rank.sh, which runs this rank of the whole job on one GPU, "
    "communication faked, and logs its memory (Megatron-LM).",
)
@click.option(
    "--with",
    "additions",
    type=OneOf("addition", ADDITIONS),
    multiple=True,
    help="operations: what a production launch has as well, as far as runtime and launcher have "
    "it: asynchronous saves, exit signal, requeue, restarts, time-outs, NUMA binding, loggers, "
    "variables of the network.",
)
@FORCE
@JSON
def command(
    plan: Path,
    candidate: int | None,
    runtime: str | None,
    launcher: str,
    output_dir: Path | None,
    *,
    trainer: str | None,
    keys: str | None,
    trials: int | None,
    one_rank: int | None,
    additions: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Write the launch script of a plan.

    PLAN is a file written by `plan search --output`. The script needs what you alone know, such
    as the paths of data and checkpoints, in variables that this command lists. With `--json` the
    files are printed as one document, and written where `--output-dir` is given, too.
    """
    if additions and (keys is not None or one_rank is not None):
        raise UsageError("--with adds to a launch script: leave --keys and --one-rank out")
    if keys is not None:
        _show_keys(_keys(keys, plan, candidate), as_json=as_json)
        return
    if output_dir is None and not as_json:
        raise UsageError("give --output-dir FOLDER for a launch script, or --keys PROJECT")
    if output_dir is not None:
        refuse_folder(output_dir, force=force)
    if trainer is not None and (runtime is not None or one_rank is not None):
        raise UsageError("--trainer takes the plan's own runtime: leave --runtime, --one-rank out")
    way = _Way(partial(_config, runtime, trainer), launcher, operations="operations" in additions)
    launches = _launches(plan, candidate, way, trials=trials, one_rank=one_rank)
    if output_dir is not None:
        for one in launches:
            folder = output_dir / one.folder
            for gone in write_folder(folder, one.files, stale=one.stale, force=force):
                remark(f"removed {gone}")
    files = _document(output_dir, launches)
    answer(files.json(), _page(output_dir, launches), as_json=as_json, found=files)


@dataclass(frozen=True, slots=True)
class _Launch:
    """A folder of files: what starts is the first, the plan the last."""

    files: tuple[NewFile, ...]
    config: LaunchConfig
    starts: str = ""
    """Program that starts the script; empty: itself."""
    stale: tuple[str, ...] = ()
    """Files of another launch."""
    folder: str = ""
    """Inside that of the output."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How a layout is started."""

    configure: Callable[[Job, Layout], LaunchConfig]
    launcher: str
    operations: bool
    """Are those of a production launch written?"""


def _launches(
    plan: Path,
    candidate: int | None,
    way: _Way,
    *,
    trials: int | None,
    one_rank: int | None,
) -> tuple[_Launch, ...]:
    """What is requested, the one to start first."""
    if one_rank is not None:
        if trials is not None or way.launcher != "torchrun":
            raise UsageError(
                "--one-rank writes a script of its own: leave --trials, --launcher out"
            )
        return (_of_one_rank(plan, candidate, way.configure, one_rank),)
    if trials is None:
        return (_launch(plan, candidate, way),)
    if candidate is not None or way.launcher != "slurm":
        raise SpecError("--trials is for --launcher slurm, and takes no --candidate")
    text, job, _, _ = _read(plan, None)
    ranks = tuple(range(1, min(trials, len(written(text).candidates)) + 1))
    each = [replace(_launch(plan, rank, way), folder=TRIAL.format(rank)) for rank in ranks]
    array = array_job(job.cluster, ranks, LAUNCHERS["slurm"].file)
    files = (NewFile(array.name, array.text), NewFile(PLAN_FILE, text))
    return (_Launch(files, each[0].config, "sbatch"), *each)


def _launch(plan: Path, candidate: int | None, way: _Way) -> _Launch:
    """The launch of one layout."""
    text, job, layout, order = _read(plan, candidate)
    config, start = way.configure(job, layout), launcher_named(way.launcher)
    if note := checkpoint_note(config.runtime, layout):
        config = replace(config, notes=(*config.notes, note))
    if config.runtime in set(EXPORTERS) - {job.runtime}:
        other = (
            f"priced on {job.runtime}: {config.runtime} takes another time and memory, and another "
            f"layout may be its best; `plan search --runtime {config.runtime}` plans for it"
        )
        config = replace(config, notes=(other, *config.notes))
    if way.operations:
        seconds, ordered = _step_seconds(text), bool(order)
        config = with_operations(config, job, layout, way.launcher, seconds, ordered=ordered)
    elif job.cluster.failures:
        config = with_saves(config, job, _step_seconds(text))
    script, hosts = start(config, job.cluster, order), hostfile(job.cluster, order)
    own = (script, hosts) if order else (script,)
    files = [NewFile(file.name, file.text, executable=file.executable) for file in own]
    if not start.carries_files:
        files += [NewFile(file.name, file.text) for file in config.files]
    files.append(NewFile(PLAN_FILE, text))
    ours = {PLAN_FILE, HOSTFILE, *(one.file for one in LAUNCHERS.values())}
    assert ours.isdisjoint(file.name for file in config.files)
    others = ours - {file.name for file in files}
    return _Launch(tuple(files), config, start.starts, tuple(sorted(others)))


def _step_seconds(text: str) -> float:
    """The planned step.

    Raises:
        SpecError: The plan has no estimate.
    """
    estimate = written(text).estimate
    seconds = estimate.get("step_time_s") if isinstance(estimate, dict) else None
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise SpecError(
            "the plan has no step time, which the interval of saves is counted in: "
            "write it anew with `plan search --output`"
        )
    return seconds


def _of_one_rank(
    plan: Path, candidate: int | None, configure: Callable[[Job, Layout], LaunchConfig], rank: int
) -> _Launch:
    """What runs one rank alone."""
    text, job, layout, _ = _read(plan, candidate)
    config = configure(job, layout)
    config, file = script_of_one_rank(config, job.cluster, rank)
    script = NewFile(file.name, file.text, executable=file.executable)
    return _Launch((script, NewFile(PLAN_FILE, text)), config)


def _keys(target: str, plan: Path, candidate: int | None) -> KeyLines:
    """Of a plan, with how often it saves where its cluster states failures."""
    text, job, layout, _ = _read(plan, candidate)
    stated = key_lines(target, job, layout)
    if job.cluster.failures is None:
        return stated
    often = f"in place of an interval above: {saves_of(job).text(_step_seconds(text))}"
    return replace(stated, notes=(*stated.notes, often))


def _show_keys(stated: KeyLines, *, as_json: bool) -> None:
    """Lines to paste, whole, then what to know of them."""
    lines = "\n".join((f"# {stated.target} @{stated.commit[:8]}", *stated.lines))
    lacking = (
        (section(f"{stated.target} has no key for", *stated.lacking),) if stated.lacking else ()
    )
    page = (*lacking, notes_part(stated.notes))
    if as_json:
        document = FilesDocument(
            runtime=stated.target, settings=stated.lines, lacking=stated.lacking, notes=stated.notes
        )
        answer(document.json(), (lines, *page), as_json=True, found=document)
    else:
        echo(lines)
        show("", *page)


def _config(runtime: str | None, trainer: str | None, job: Job, layout: Layout) -> LaunchConfig:
    """The launch of a layout by what is named, else by the runtime of its job."""
    name = runtime or job.runtime
    export = TRAINERS[trainer] if trainer else _exporter(name)
    if job.cluster.on_cpu and not RUNTIMES[name].trains_on_cpu:
        raise UnsupportedError(f"{no_cpu(name)}: search with one of these")
    return export(job, layout)


def _exporter(runtime: str) -> Callable[[Job, Layout], LaunchConfig]:
    if runtime in RUNTIMES and runtime not in EXPORTERS:
        raise UnsupportedError(
            f"{no_files(runtime)}; search with one of these, or set the degrees in your own script"
        )
    if runtime not in EXPORTERS:
        raise unknown_name("runtime", runtime, EXPORTERS, f"known: {', '.join(EXPORTERS)}")
    return EXPORTERS[runtime]


def _read(path: Path, candidate: int | None) -> tuple[str, Job, Layout, tuple[str, ...]]:
    text, document = read_json(path)
    with errors_of(path):
        if document.values.get("apart"):
            raise UnsupportedError(NO_EXPORT)
        if candidate is not None:
            text = with_candidate(text, candidate)
        job, layout = chosen_from_json(text)
        check(job, layout)
        order = node_order(text, job.cluster)
    return text, job, layout, order


def _page(folder: Path | None, launches: Sequence[_Launch]) -> tuple[RenderableType, ...]:
    first, *others = launches
    *names, plan = (str((folder or Path()) / file.name) for file in first.files)
    listed = f"{', '.join(names)} and {plan}"
    if others:
        listed = f"{names[0]}, and a folder for each of {len(others)} layouts"
    stated = f"Wrote {listed}." if folder else f"In the document: {', '.join(names)}."
    variables = [f"{v.name}: {v.sentence}" for v in first.config.required_environment]
    return (
        stated,
        *((section("Set these first", *variables),) if variables else ()),
        notes_part(first.config.notes),
        section("Next", _start(folder or Path(), first)),
    )


def _start(folder: Path, launch: _Launch) -> str:
    """The command that starts it."""
    script = launch.files[0]
    path = shlex.quote(str(folder / script.name))
    if script.executable and "/" not in path:
        path = f"./{path}"
    return f"{launch.starts} {path}".lstrip()


def _document(folder: Path | None, launches: Sequence[_Launch]) -> FilesDocument:
    made = [(Path(one.folder) / file.name, file) for one in launches for file in one.files]
    config = launches[0].config
    return FilesDocument(
        written=tuple(str(folder / path) for path, _ in made) if folder else (),
        files={str(path): file.text for path, file in made if path.name != PLAN_FILE},
        executable=tuple(str(path) for path, file in made if file.executable),
        start=_start(Path(), launches[0]),
        runtime=config.runtime,
        variables={one.name: one.sentence for one in config.required_environment},
        notes=config.notes,
    )

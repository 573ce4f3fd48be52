"""`plan export`: from a plan to the script that starts the training."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from click import UsageError, echo

from trainplan.cli.options import CANDIDATE, FORCE, PATH, PLAN, OneOf, names, page
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from rich.console import RenderableType

    from trainplan.cli.blocks import section, show
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
    from trainplan.planner.plan import NO_EXPORT
    from trainplan.planner.questions import check, no_cpu, no_files, node_order
    from trainplan.planner.runtimes import EXPORTERS, KeyLines, key_lines

PLAN_FILE = "plan.json"


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
    "--launcher",
    type=OneOf("launcher", names.LAUNCHERS),
    default="torchrun",
    help="torchrun writes run.sh for every node (torchrun-c10d: nodes number themselves), slurm "
    "run.sbatch, mpi run_mpi.sh, kubernetes a TrainJob, pytorchjob a PyTorchJob, skypilot a task.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 1000),
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
    type=click.IntRange(0, 1 << 30),
    metavar="RANK",
    help="Instead of a launch: run_one_rank.sh, which runs this rank of the whole job on one GPU, "
    "communication faked, and logs its memory (Megatron-LM).",
)
@FORCE
def command(
    plan: Path,
    candidate: int | None,
    runtime: str | None,
    launcher: str,
    output_dir: Path | None,
    *,
    keys: str | None,
    trials: int | None,
    one_rank: int | None,
    force: bool,
) -> None:
    """Write the launch script of a plan.

    PLAN is a file written by `plan search --output`. The script asks for what you alone know, such
    as the paths of data and checkpoints, in variables that this command lists.
    """
    if keys is not None:
        _, job, layout, _ = _read(plan, candidate)
        _show_keys(key_lines(keys, job, layout))
        return
    if output_dir is None:
        raise UsageError("give --output-dir FOLDER for a launch script, or --keys PROJECT")
    refuse_folder(output_dir, force=force)
    if one_rank is not None:
        if trials is not None or launcher != "torchrun":
            raise UsageError(
                "--one-rank writes a script of its own: leave --trials, --launcher out"
            )
        show(*_of_one_rank(plan, candidate, runtime, output_dir, one_rank, force=force))
        return
    if trials is None:
        show(*_written(plan, candidate, runtime, launcher, output_dir, force=force))
        return
    if candidate is not None or launcher != "slurm":
        raise SpecError("--trials is for --launcher slurm, and takes no --candidate")
    _write_trials(plan, runtime, output_dir, trials, force=force)


def _write_trials(
    plan: Path, runtime: str | None, output_dir: Path, trials: int, *, force: bool
) -> None:
    """Write an array job, and a folder for each of the best layouts."""
    text, job, _, _ = _read(plan, None)
    ranks = tuple(range(1, min(trials, len(written(text).candidates)) + 1))
    for rank in ranks:  # what cannot be exported is said before anything is written
        _, own, layout, _ = _read(plan, rank)
        _config(runtime, own, layout)
    array = array_job(job.cluster, ranks, LAUNCHERS["slurm"].file)
    files = [NewFile(array.name, array.text), NewFile(PLAN_FILE, text)]
    write_folder(output_dir, files, force=force)
    pages = [
        _written(plan, rank, runtime, "slurm", output_dir / TRIAL.format(rank), force=force)
        for rank in ranks
    ]
    start = f"sbatch {shlex.quote(str(output_dir / array.name))}"
    printed = f"Wrote {output_dir / array.name}, and a folder for each of {len(ranks)} layouts."
    show(printed, *pages[0][1:-1], section("Next", start))


def _written(
    plan: Path,
    candidate: int | None,
    runtime: str | None,
    launcher: str,
    output_dir: Path,
    *,
    force: bool,
) -> tuple[RenderableType, ...]:
    """Write the launch of one layout; what to say of it."""
    text, job, layout, order = _read(plan, candidate)
    config, start = _config(runtime, job, layout), launcher_named(launcher)
    script, hosts = start(config, job.cluster, order), hostfile(job.cluster, order)
    own = (script, hosts) if order else (script,)
    files = [NewFile(file.name, file.text, executable=file.executable) for file in own]
    if not start.carries_files:
        files += [NewFile(file.name, file.text) for file in config.files]
    files.append(NewFile(PLAN_FILE, text))
    ours = {PLAN_FILE, HOSTFILE, *(one.file for one in LAUNCHERS.values())}
    assert ours.isdisjoint(file.name for file in config.files)
    others = ours - {file.name for file in files}
    for gone in write_folder(output_dir, files, stale=sorted(others), force=force):
        remark(f"removed {gone}")
    return _page(output_dir, files[:-1], config, start.starts)


def _of_one_rank(
    plan: Path, candidate: int | None, runtime: str | None, folder: Path, rank: int, *, force: bool
) -> tuple[RenderableType, ...]:
    """Write what runs one rank alone; what to say of it."""
    text, job, layout, _ = _read(plan, candidate)
    config = _config(runtime, job, layout)
    config, file = script_of_one_rank(config, job.cluster, rank)
    script = NewFile(file.name, file.text, executable=file.executable)
    write_folder(folder, [script, NewFile(PLAN_FILE, text)], force=force)
    return _page(folder, [script], config, "")


def _show_keys(stated: KeyLines) -> None:
    """Lines to paste, whole, then what to know of them."""
    echo("\n".join((f"# {stated.target} @{stated.commit[:8]}", *stated.lines)))
    lacking = (
        (section(f"{stated.target} has no key for", *stated.lacking),) if stated.lacking else ()
    )
    show("", *lacking, notes_part(stated.notes))


def _config(runtime: str | None, job: Job, layout: Layout) -> LaunchConfig:
    """The launch of a layout by the runtime that is named, else by that of its job."""
    name = runtime or job.runtime
    export = _exporter(name)
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


def _page(
    folder: Path, written: Sequence[NewFile], config: LaunchConfig, starts: str
) -> tuple[RenderableType, ...]:
    script = written[0]
    listed = ", ".join(str(folder / file.name) for file in written)
    path = shlex.quote(str(folder / script.name))
    start = f"{starts} {path}".lstrip()
    if script.executable and "/" not in path:
        start = f"./{path}"
    variables = [f"{v.name}: {v.sentence}" for v in config.required_environment]
    return (
        f"Wrote {listed} and {folder / PLAN_FILE}.",
        *((section("Set these first", *variables),) if variables else ()),
        notes_part(config.notes),
        section("Next", start),
    )

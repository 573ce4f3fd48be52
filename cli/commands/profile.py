"""`plan profile`: measure the machines."""

from __future__ import annotations

import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import click

from trainplan.cli.options import (
    FORCE,
    JSON,
    PATH,
    REPORT,
    OneOf,
    gathered,
    job_option,
    names,
    page,
    parameters,
    seq_length,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import show
    from trainplan.cli.files import (
        load_model,
        measured_here,
        profile_text,
        refuse_existing,
        write_text,
    )
    from trainplan.cli.pages import screen
    from trainplan.cli.terminal import TaskBar, remark, show_json, write
    from trainplan.cli.values import ReportFile
    from trainplan.cli.words import plural
    from trainplan.costmodel.base import SpecError
    from trainplan.costmodel.job import Precision
    from trainplan.costmodel.profiles import Profile
    from trainplan.profiler.journal import JournalFile
    from trainplan.profiler.launch import (
        Budget,
        Device,
        Files,
        Launch,
        LauncherKind,
        StoppedByUser,
        default_nproc,
        device_of,
        launch_script,
        num_gpus,
        request_for,
    )
    from trainplan.profiler.task import Request
    from trainplan.profiler.watch import Limits, StopSignals

LAUNCH_OPTIONS = frozenset(
    {"--print-launch", "--nnodes", "--nproc-per-node", "--node-rank", "--rdzv-endpoint"}
)
"""Options the script sets itself; each takes a value."""


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """What is measured."""

    model: str | None
    seq_length: int | None
    precision: Precision | None
    quick: bool
    budget: float | None
    """Seconds of the whole run."""
    only: tuple[str, ...]
    optimizer: tuple[str, ...]
    all_links: bool
    scratch: Path | None
    runtime: tuple[str, ...]

    def request(self, device: Device, nproc: int) -> Request:
        """The same on every node."""
        stated: dict[str, object] = {"only": self.only, "all_links": self.all_links}
        stated |= {"optimizers": self.optimizer}
        stated |= {"seq_length": self.seq_length} if self.seq_length else {}
        stated |= {"precision": self.precision} if self.precision else {}
        stated |= {"scratch": str(self.scratch)} if self.scratch else {}
        stated |= {"runtimes": self.runtime} if self.runtime else {}
        model = load_model(self.model) if self.model else None
        return request_for(model, device, nproc, quick=self.quick, stated=stated)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Where it is measured."""

    nproc_per_node: int | None
    nnodes: int
    node_rank: int | None
    rdzv_endpoint: str | None
    timeout: float
    start_timeout: float

    def stated_nproc(self) -> int:
        """Processes of a node, for nodes that are not this one.

        Raises:
            SpecError: Their number is not given.
        """
        if self.nproc_per_node is None:
            raise SpecError(
                "--print-launch writes for other machines than this one: give --nproc-per-node, "
                "the GPUs of a node there"
            )
        return self.nproc_per_node

    def launch(self, gpus: int, budget: Budget | None) -> Launch:
        """Processes of this node, which has that many GPUs.

        Raises:
            SpecError: Several nodes, and what they need to find each other is not given.
        """
        if self.nnodes > 1 and (self.node_rank is None or self.rdzv_endpoint is None):
            raise SpecError(
                f"--nnodes {self.nnodes} needs --node-rank (0 to {self.nnodes - 1}) and "
                "--rdzv-endpoint HOST:PORT of node 0; --print-launch writes a script that sets them"
            )
        rank = self.node_rank or 0
        if rank >= self.nnodes:
            raise SpecError(f"--node-rank {rank}: with --nnodes {self.nnodes} ranks end before it")
        return Launch(
            nproc_per_node=self.nproc_per_node or default_nproc(gpus),
            nnodes=self.nnodes,
            node_rank=rank,
            rdzv_endpoint=self.rdzv_endpoint or "",
            timeout_seconds=self.timeout,
            start_seconds=self.start_timeout,
            budget=budget,
        )


LOCAL = Path("profile.json")
WANTED = (
    job_option(
        "--model",
        "Its shapes are measured: as in search.  [default: llama3-8b on GPUs, a tiny one on a CPU]",
    ),
    seq_length(required=False),
    job_option("--precision", "Number format of the products. [default: bf16, on a CPU fp32]"),
    click.option(
        "--runtime",
        multiple=True,
        type=OneOf("runtime", names.LAYER_RUNTIMES),
        help="Measure whole layers as it trains them, again for more.  [default: torch-eager, and "
        "megatron-lm where megatron-core is installed]",
    ),
    click.option(
        "--quick", is_flag=True, help="A shorter list, about a minute: fewer sizes, fewer repeats."
    ),
    click.option(
        "--budget",
        metavar="TIME",
        callback=parameters.second_count,
        help="End in this time, start included, such as 5m: what explains most of a step goes "
        "first, the answer lists what was left out.",
    ),
    click.option(
        "--only",
        multiple=True,
        type=OneOf("measurement", names.MEASUREMENTS),
        metavar="ITEM",
        cls=parameters.listing(names.MEASUREMENTS),
        help="Measure this alone (names below), again for more.",
    ),
    click.option(
        "--optimizer",
        multiple=True,
        type=OneOf("optimizer", names.MEASURED_OPTIMIZERS),
        metavar="NAME",
        help="Measure a step of this as well as of AdamW, again for more: "
        f"{', '.join(names.MEASURED_OPTIMIZERS[1:])}.",
    ),
    click.option(
        "--all-links",
        is_flag=True,
        help="Time all pairs of GPUs and nodes, not five random rounds.",
    ),
    click.option(
        "--scratch",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="Folder on the drive to measure; files in it are removed again.",
    ),
)
NODES = (
    click.option(
        "--nproc-per-node",
        type=parameters.IntRange(1, 1024),
        help="Processes of one node. [default: its GPUs, or two on a CPU]",
    ),
    click.option("--nnodes", type=parameters.Whole(1 << 16), default=1, help="Nodes."),
    click.option("--node-rank", type=parameters.IntRange(0), help="Number of this node, from 0."),
    click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Where node 0 is found."),
    click.option(
        "--timeout",
        type=parameters.Seconds(1, 3600),
        default=60.0,
        help="A rank or node that does nothing for so long ends the run.",
    ),
    click.option(
        "--start-timeout",
        type=parameters.Seconds(1, 86400),
        default=300.0,
        help="For all nodes to come and to load torch; a rank that does nothing meanwhile is given "
        "--timeout.",
    ),
)


@page(
    "profile",
    "plan profile --model llama3-8b --output profile.json",
    "plan search --model llama3-8b --cluster profile.json \\",
    "  --global-batch-size 64 --seq-length 4096",
)
@gathered("wanted", "MeasureOptions", WANTED)
@gathered("nodes", "NodeOptions", NODES)
@click.option(
    "--output",
    type=PATH,
    default=LOCAL,
    help="The profile; every sample also goes into OUTPUT.journal.jsonl at once.",
)
@click.option("--restart", "fresh", is_flag=True, help="Drop the journal of an earlier run.")
@click.option(
    "--print-launch",
    type=OneOf("launcher", names.LAUNCH_KINDS),
    help="Print a script that measures --nnodes nodes, and end.",
)
@REPORT
@FORCE
@JSON
def command(
    wanted: MeasureOptions,
    nodes: NodeOptions,
    output: Path,
    report: Path | None,
    print_launch: LauncherKind | None,
    *,
    fresh: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Measure this machine: compute, memory, links.

    All GPUs of the machine, or its CPU over gloo where it has none. A run that was interrupted goes
    on where it stopped. Other commands take the file as --profile, or as --cluster.
    """
    seconds = wanted.budget
    budget = Budget(seconds, monotonic() + seconds) if seconds else None
    if print_launch:
        write(launch_script(print_launch, _command_line(), nodes.nnodes, nodes.stated_nproc()))
        return
    refuse_existing(output, force=force)
    page = ReportFile(report, force)
    page.check()
    files = Files.of_output(output)
    with StopSignals() as signals:
        try:
            profile = _measured(wanted, nodes, files, signals, budget, fresh=fresh)
        except KeyboardInterrupt as stop:
            sent = signals.sent or (stop.sent if isinstance(stop, StoppedByUser) else signal.SIGINT)
            remark(f"stopped by {sent.name}: {_kept(stop, files)}")
            raise click.exceptions.Exit(128 + sent) from stop
    if profile is None:
        show(f"node {nodes.node_rank} is done; the profile is written on node 0")
        return
    write_text(output, profile_text(profile), force=True)
    if as_json:
        show_json(profile.document())
    else:
        show(*screen(profile, output))
    page.write(profile.document())


def _measured(
    wanted: MeasureOptions,
    nodes: NodeOptions,
    files: Files,
    signals: StopSignals,
    budget: Budget | None,
    *,
    fresh: bool,
) -> Profile | None:
    gpus = num_gpus(Limits(nodes.timeout, nodes.start_timeout), signals.sleep)
    where, device = nodes.launch(gpus, budget), device_of(gpus)
    request = wanted.request(device, where.nproc_per_node)
    with TaskBar("measuring") as bar:
        return measured_here(request, where, files, bar, gpus, restart=fresh)


def _kept(stop: KeyboardInterrupt, files: Files) -> str:
    """What there is of a run that was ended, and what goes on with it."""
    progress = stop.progress if isinstance(stop, StoppedByUser) else None
    kept = f"{progress.done} of {plural(progress.total, 'task')}" if progress else ""
    if not progress and (number := _in_journal(files)):
        kept = plural(number, "task")
    if not kept:
        return "nothing was measured yet, and nothing runs on"
    words = shlex.join(("plan", *(word for word in sys.argv[1:] if word != "--restart")))
    return (
        f"{kept} {'is' if kept == '1 task' else 'are'} kept in {files.journal}, and nothing runs "
        f"on; `{words}` goes on from there"
    )


def _in_journal(files: Files) -> int:
    """Tasks that earlier runs ended."""
    try:
        content = JournalFile(files.journal).content()
    except (OSError, SpecError):
        return 0
    return len(content.done) if content else 0


def _command_line() -> tuple[str, ...]:
    """The words typed, without where to measure."""
    words = sys.argv[1:]
    kept: list[str] = []
    skip = False
    for word in words:
        name = word.split("=", 1)[0]
        if skip or name in LAUNCH_OPTIONS:
            skip = not skip and "=" not in word
            continue
        kept.append(word)
    return ("plan", *kept)

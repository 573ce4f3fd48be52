"""`plan profile`: measure the machines."""

from __future__ import annotations

import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import click

from trainplan.cli.files.disk import refuse_existing, write_text
from trainplan.cli.files.inputs import load_model
from trainplan.cli.files.measuring import measured_here
from trainplan.cli.files.profiles import profile_document, profile_text
from trainplan.cli.files.reports import ReportFile
from trainplan.cli.render.profile import profile_page
from trainplan.cli.terminal.output import remark, show, show_json, write
from trainplan.cli.terminal.progress import TaskBar
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec.evidence.profile import Profile
from trainplan.costmodel.spec.job import Precision
from trainplan.profiler.launch.agenda import Budget
from trainplan.profiler.launch.launch import StoppedByUser, default_nproc, num_gpus
from trainplan.profiler.launch.requests import Device, device_of, request_for
from trainplan.profiler.launch.script import LauncherKind, launch_script
from trainplan.profiler.launch.where import Files, Launch
from trainplan.profiler.task import Request
from trainplan.profiler.watch.told import ToldToEnd
from trainplan.profiler.watch.watch import Limits

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
            SpecError: Nobody says how many.
        """
        if self.nproc_per_node is None:
            raise SpecError(
                "--print-launch writes for other machines than this one: say --nproc-per-node, the "
                "GPUs of a node there"
            )
        return self.nproc_per_node

    def launch(self, gpus: int, budget: Budget | None) -> Launch:
        """Processes of this node, which has that many GPUs.

        Raises:
            SpecError: Several nodes, and what they need to find each other is not said.
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


def command(
    wanted: MeasureOptions,
    nodes: NodeOptions,
    output: Path,
    report: Path | None,
    print_launch: LauncherKind | None,
    *,
    restart: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Measure, write the profile and print it."""
    seconds = wanted.budget
    budget = Budget(seconds, monotonic() + seconds) if seconds else None
    if print_launch:
        write(launch_script(print_launch, _command_line(), nodes.nnodes, nodes.stated_nproc()))
        return
    refuse_existing(output, force=force)
    page = ReportFile(report, force)
    page.check()
    files = Files.beside(output)
    with ToldToEnd() as told:
        try:
            profile = _measured(wanted, nodes, files, told, budget, restart=restart)
        except KeyboardInterrupt as stop:
            sent = told.sent or (stop.sent if isinstance(stop, StoppedByUser) else signal.SIGINT)
            remark(f"stopped by {sent.name}: {_kept(stop, files)}")
            raise click.exceptions.Exit(128 + sent) from stop
    if profile is None:
        show(f"node {nodes.node_rank} is done; the profile is written on node 0")
        return
    write_text(output, profile_text(profile), force=True)
    if as_json:
        show_json(profile_document(profile))
    else:
        show(*profile_page(profile, output))
    page.write(profile_document(profile))


def _measured(
    wanted: MeasureOptions,
    nodes: NodeOptions,
    files: Files,
    told: ToldToEnd,
    budget: Budget | None,
    *,
    restart: bool,
) -> Profile | None:
    gpus = num_gpus(Limits(nodes.timeout, nodes.start_timeout), told.sleep)
    where, device = nodes.launch(gpus, budget), device_of(gpus)
    request = wanted.request(device, where.nproc_per_node)
    with TaskBar("measuring") as bar:
        return measured_here(request, where, files, bar, gpus, restart=restart)


def _kept(stop: KeyboardInterrupt, files: Files) -> str:
    """What there is of a run that was told to end, and what goes on with it."""
    progress = stop.progress if isinstance(stop, StoppedByUser) else None
    if progress is None:
        return "nothing was measured yet, and nothing runs on"
    words = shlex.join(("plan", *(word for word in sys.argv[1:] if word != "--restart")))
    return (
        f"{progress.done} of {progress.total} tasks are kept in {files.journal}, and nothing runs "
        f"on; `{words}` goes on from there"
    )


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

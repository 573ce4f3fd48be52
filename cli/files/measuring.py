"""A profile of this machine, measured now."""

from __future__ import annotations

import shlex
import sys

from trainplan.cli.terminal.progress import TaskBar
from trainplan.costmodel.spec.evidence.profile import Origin, Profile
from trainplan.profiler.fit.assemble import profile_of
from trainplan.profiler.journal.records import JournalContent
from trainplan.profiler.launch.launch import run
from trainplan.profiler.launch.requests import device_of, notes
from trainplan.profiler.launch.where import Files, Launch
from trainplan.profiler.task import Place, Request


def measured_here(
    request: Request, where: Launch, files: Files, bar: TaskBar, gpus: int, *, restart: bool = False
) -> Profile | None:
    """Measure, going on from the journal of `files`; null on nodes other than the first.

    Raises:
        PlanError: As `profiler.launch.launch.run`.
    """
    content = run(request, where, files, bar.report, restart=restart)
    if content is None:
        return None
    place = Place(device_of(gpus), 0, where.nproc_per_node, 0, where.nproc_per_node)
    return profile_of(content, _origin(content, bar.seconds), notes(request, place))


def _origin(content: JournalContent, seconds: float) -> Origin:
    header = content.header
    hosts = ", ".join(host.name for host in header.hosts)
    return Origin(
        source=f"plan profile on {hosts}, {header.created}",
        created=header.created,
        command=shlex.join(("plan", *sys.argv[1:])),
        wall_seconds=seconds,
    )

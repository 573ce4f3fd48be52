"""A profile of this machine, measured now."""

import shlex
import sys
from collections.abc import Iterator, Sequence

from trainplan.cli.terminal import TaskBar
from trainplan.costmodel.profiles import Origin, Profile
from trainplan.profiler.fit import profile_of
from trainplan.profiler.journal import JournalContent
from trainplan.profiler.launch import Files, Launch, device_of, notes, run
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
    written = (*left_out_notes(content, sys.argv[1:]), *notes(request, place))
    return profile_of(content, _origin(content, bar.seconds), written)


def left_out_notes(content: JournalContent, words: Sequence[str]) -> Iterator[str]:
    """What a budget had no time for, and the command that measures it."""
    left = content.left_out
    if left is None:
        return
    counts = ", ".join(f"{item} {len(keys)}" for item, keys in left.keys.items())
    number = sum(map(len, left.keys.values()))
    start = "" if content.done else " (its start took all of it: give more)"
    again = [word for word in words if word not in ("--restart", "--force")]
    yield (
        f"the budget of {left.budget_seconds:g} s{start} left out {number} of "
        f"{number + len(content.done)} tasks: {counts}; the same command goes on with them, with a "
        f"budget of its own: {shlex.join(('plan', *again, '--force'))}"
    )


def _origin(content: JournalContent, seconds: float) -> Origin:
    header = content.header
    hosts = ", ".join(host.name for host in header.hosts)
    return Origin(
        source=f"plan profile on {hosts}, {header.created}",
        created=header.created,
        command=shlex.join(("plan", *sys.argv[1:])),
        wall_seconds=seconds,
    )

"""What every rank runs: `python -m trainplan.profiler.launch.session`, which `launch` starts."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from time import monotonic

from trainplan.costmodel import catalog
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.profiles import Host
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.host import (
    CAP_SECONDS,
    QUICK_CAP_SECONDS,
    DeviceClock,
    contention_now,
    slow_ranks,
    speed_probe,
    this_host,
    this_software,
)
from trainplan.profiler.journal import Header, JournalFile
from trainplan.profiler.launch.costs import Ahead, Costs
from trainplan.profiler.launch.loop import Restart, RunLoop
from trainplan.profiler.launch.outcome import LEFT_ALONE
from trainplan.profiler.launch.ranks import DATA_FRACTION, Ranks, join, leave, this_place
from trainplan.profiler.launch.scheduler import Budget, Scheduler
from trainplan.profiler.task import Item, Place, Request
from trainplan.profiler.watch import Heartbeat


@dataclass(frozen=True, slots=True)
class Options:
    """What the supervisor tells each rank."""

    request: Path
    journal: Path
    """Written by rank 0 alone."""
    status: Path
    """Folder of the heartbeats."""
    deadline_seconds: float
    """Of one task."""
    start_seconds: float
    """Until all ranks have met."""
    parent: int
    """Process that watches; this one ends with it."""
    listening: int | None
    """Socket at which the ranks meet, on rank 0."""
    budget: Budget | None
    """Rank 0 keeps it."""


def main(arguments: Sequence[str] | None = None, items: Mapping[str, Item] | None = None) -> int:
    """Measure what the request asks for, as one of the ranks that `launch` started."""
    options = _options(arguments)
    if os.getppid() != options.parent:
        return 1  # it ended before this process could be told to end with it
    heartbeat = Heartbeat(options.status, int(os.environ["RANK"]), options.parent)
    try:
        _run(options, heartbeat, _registry() if items is None else items)
    except Restart:
        heartbeat.report_phase("restart")
        os._exit(0)  # the groups are broken: to part in order would wait for ever
    except PlanError as error:
        heartbeat.report_phase("refused", detail=str(error))
        return 2
    except RuntimeError as error:  # what torch raises where another rank is gone
        if LEFT_ALONE.search(str(error)):
            heartbeat.end("alone")
        raise
    heartbeat.report_phase("finished")
    return 0


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m trainplan.profiler.launch.session")
    parser.add_argument("--request", type=Path, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--status", type=Path, required=True)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--start", type=float, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--listening", type=int)
    parser.add_argument("--budget", type=float, nargs=2, metavar=("SECONDS", "UNTIL"))
    found = parser.parse_args(arguments)
    return Options(
        found.request,
        found.journal,
        found.status,
        found.deadline,
        found.start,
        found.parent,
        found.listening,
        Budget(*found.budget) if found.budget else None,
    )


def _registry() -> Mapping[str, Item]:
    from trainplan.profiler.bench import ITEMS  # noqa: PLC0415 (tests bring items of their own)

    return ITEMS


def _run(options: Options, heartbeat: Heartbeat, items: Mapping[str, Item]) -> None:
    request = Request.model_validate_json(options.request.read_text("utf-8"))
    chosen = _chosen(request, items)
    place = this_place()
    heartbeat.report_phase("meeting")
    ranks = join(place, options.deadline_seconds, options.start_seconds, options.listening)
    heartbeat.report_phase("waiting")
    _must_agree(ranks, request.model_dump_json(), heartbeat.beat.host)
    clock = DeviceClock(
        place,
        request.quick,
        ranks.control,
        DATA_FRACTION * options.deadline_seconds,
        going_on=heartbeat.go_on,
    )
    hosts = tuple(
        Host.model_validate_json(text) for text in ranks.gather(_host(place, request)) if text
    )
    header = Header(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        request=request,
        software=this_software(place),
        hosts=hosts,
    )
    contention = ranks.gather(_cpu_contention(place, heartbeat.beat.host))
    begin = monotonic()
    probe = speed_probe(place, heartbeat.beat.host, clock)
    asking = monotonic() - begin
    first_seconds = ranks.gather(repr(probe.first_seconds))
    loop = RunLoop(ranks, clock, heartbeat, probe, JournalFile(options.journal))
    loop.open(header)
    loop.plan(request, chosen)
    for sentence in filter(None, contention):
        loop.note(sentence)
    loop.note_slow(tuple(slow_ranks(tuple(map(float, first_seconds)), place)))
    loop.run(_scheduler(loop, chosen, header, options.budget, asking) if loop.first else None)
    ranks.gather("")
    leave()


def _scheduler(
    loop: RunLoop,
    items: Sequence[Item],
    header: Header,
    budget: Budget | None,
    probe_seconds: float,
) -> Scheduler:
    """Of rank 0, which alone loads what prices a step."""
    from trainplan.profiler.fit import error_shares  # noqa: PLC0415

    known, request = {item.name: item for item in items}, header.request
    return Scheduler(
        tasks=[
            Ahead(number, step.name, known[step.item])
            for number, step in enumerate(loop.steps)
            if step.decision != "pass over"
        ],
        content=loop.content,
        error_shares=cache(partial(_error_shares, error_shares, header, loop.ranks.place)),
        now=loop.now,
        costs=Costs(QUICK_CAP_SECONDS / CAP_SECONDS if request.quick else 1.0),
        budget=budget,
        probe_seconds=probe_seconds,
    )


def _error_shares(
    error_shares: Callable[..., Mapping[str, float]], header: Header, place: Place
) -> Mapping[str, float]:
    """Of each item; alike where the step that judges them cannot be priced."""
    request, names = header.request, header.hosts[0].gpu_names
    gpu = catalog.gpu_named(names[0]) if names else None
    nodes = place.num_nodes, place.local_world_size
    priced = partial(error_shares, model=request.model, seq_length=request.seq_length, nodes=nodes)
    try:
        return priced(gpu, precision=request.precision)
    except PlanError:
        return priced(None, precision=request.precision)


def _chosen(request: Request, items: Mapping[str, Item]) -> tuple[Item, ...]:
    unknown = [name for name in request.only if name not in items]
    if unknown:
        raise ProfilerError(
            f"nothing is measured under the name {unknown[0]!r}: choose of {', '.join(items)}"
        )
    return tuple(item for name, item in items.items() if not request.only or name in request.only)


def _must_agree(ranks: Ranks, request: str, host: str) -> None:
    requests, hosts = ranks.gather(request), ranks.gather(host)
    others = [rank for rank, text in enumerate(requests) if text != requests[0]]
    if others:
        raise ProfilerError(
            f"rank {others[0]} on {hosts[others[0]]} was started for other measurements than rank "
            f"0 on {hosts[0]}: start the same command on every node"
        )


def _host(place: Place, request: Request) -> str:
    """This host as JSON, said by its first process alone."""
    if place.local_rank:
        return ""
    return this_host(place, scratch=request.scratch).model_dump_json()


def _cpu_contention(place: Place, host: str) -> str:
    """What others do on this host, said by its first process while all others wait."""
    return "" if place.local_rank else contention_now(place, host)


if __name__ == "__main__":
    sys.exit(main())

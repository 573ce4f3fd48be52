"""What an outage costs: training that is lost until nodes are back, by what is done meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from trainplan.costmodel.job import Job
from trainplan.costmodel.run_costs import goodput_of
from trainplan.planner.operations import saves_of
from trainplan.planner.replan.replan import Replan, Resumed, Taken

WayName = Literal[
    "spare nodes",
    "wait",
    "go on",
    "go on after a command",
    "go on with fewer islands",
    "go on without outer steps",
]
GO_ON: Mapping[WayName, Taken] = {
    "go on": "best",
    "go on with fewer islands": "fewer",
    "go on without outer steps": "alone",
    "go on after a command": "after",
}
"""Which plan of `Replan` each way is."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What is stated of an outage; what is not is that of the cluster."""

    since_save: float | None = None
    """Seconds."""
    restart: float | None = None
    """Seconds."""
    repair: float | None = None
    """Seconds."""
    spare_nodes: int | None = None

    def times(self, job: Job) -> Times:
        """Of an outage of a job; launches whose job states nothing of failures save at an interval.

        Source: what is trained again after a failure is that of `Goodput`, else half an interval.
        """
        failures, goodput = job.cluster.failures, goodput_of(job)
        between = saves_of(job).seconds
        since, restart, repair = between / 2, self.restart, self.repair
        why = f"half of the {between / 60:g} minutes between saves, assumed: `--since-save` sets it"
        if failures and goodput:
            restart = failures.restart_s if restart is None else restart
            repair = failures.repair_s or None if repair is None else repair
            since = max(0.0, goodput.lost_s_per_failure - failures.restart_s)
            why = f"the mean, with a save every {between / 60:.3g} minutes"
        if self.since_save is not None:
            since, why = self.since_save, ""
        return Times(since, why, restart, repair)


@dataclass(frozen=True, slots=True)
class Times:
    """Of an outage; null: not stated."""

    since_save_s: float
    """Training since the last save, which is lost whatever is done."""
    assumed: str
    """Where that comes from; empty: it is stated."""
    restart_s: float | None
    """From when a start is decided until training goes on."""
    repair_s: float | None
    """Until the lost nodes are back."""


@dataclass(frozen=True, slots=True)
class Way:
    """One thing to do until the lost nodes are back."""

    name: WayName
    ready_s: float | None
    """From the failure until training goes on; null: a time that is not stated."""
    rate: float
    """Tokens per second from then on over those of the plan before."""
    lost_s: float | None = None
    """Training that is lost until the plan runs on all nodes again, in seconds of that plan; null:
    a time is not stated."""
    least_repair_s: float | None = None
    """Where nodes are away for longer it loses less than to wait, and after a command less than
    without; null: it never does, or a time is not stated."""


@dataclass(frozen=True, slots=True)
class SpareWorth:
    """A spare node out of those that the plan has, against training on all of them."""

    least_away_fraction: float
    """Of the time that a node must be away for the spare to pay."""
    away_fraction: float | None
    """Of the time that a node of them is away; null: failures or repairs are not stated."""
    pays: bool | None
    """Null: not known."""


@dataclass(frozen=True, slots=True)
class Outage:
    """What the loss of nodes costs, whatever is done."""

    lost_nodes: int
    """Negative: nodes were added, and there is no outage."""
    spare_nodes: int
    """There are, those that the plan leaves idle among them."""
    times: Times
    ways: tuple[Way, ...]
    """That which loses least first; what is not known last. Empty: no node is lost."""
    spare: SpareWorth | None
    """Null where not one node is lost, or fewer train as fast."""
    fastest: Taken = "best"
    """Of plans that start at once: it loses least of them, whatever the times."""

    @property
    def first(self) -> WayName | None:
        """What loses least; null: that is not known, or there is no outage."""
        if any(one.name == "spare nodes" for one in self.ways):
            return "spare nodes"  # with which nothing is lost but what is lost anyway
        first = self.ways[0] if self.ways else None
        return first.name if first and first.lost_s is not None else None

    @property
    def plan(self) -> Taken | None:
        """Which plan of `Replan` to go on with; null: that before, once its nodes are there."""
        if self.first in ("spare nodes", "wait"):
            return None
        return GO_ON[self.first] if self.first else self.fastest


def outage_of(found: Replan, stated: Stated) -> Outage:
    """What may be done until the lost nodes are back, and what each costs."""
    times, failures = stated.times(found.job), found.job.cluster.failures
    lost = found.job.islands * found.job.cluster.num_nodes + found.idle_nodes
    lost -= found.left.num_nodes
    if found.left.num_gpus < found.job.num_gpus:
        lost = max(1, lost)  # of a node some GPUs
    spare_nodes = stated.spare_nodes
    if spare_nodes is None:
        spare_nodes = found.idle_nodes + (failures.spare_nodes if failures else 0)
    if lost < 1:
        return Outage(lost, spare_nodes, times, (), None, found.fastest)
    restart = times.restart_s
    every = [Way("wait", _sum(times.repair_s, restart), 1.0)]
    if spare_nodes >= lost:
        every.append(Way("spare nodes", restart, 1.0, least_repair_s=0.0))
    for name, taken in GO_ON.items():
        if one := found.plans[taken]:
            way = _going_on(name, one, restart)
            if taken == "after" and found.best:
                at_once = _going_on("go on", found.best, restart)
                way = replace(way, least_repair_s=_break_even_s(at_once, way))
            every.append(way)
    every = [replace(one, lost_s=_lost_s(one, times)) for one in every]
    every.sort(key=lambda one: math.inf if one.lost_s is None else one.lost_s)
    odds = times.repair_s / failures.mtbf_node_s if failures and times.repair_s else None
    spare = spare_worth(found, odds) if lost == 1 else None
    return Outage(lost, spare_nodes, times, tuple(every), spare, found.fastest)


def _going_on(name: WayName, resumed: Resumed, restart_s: float | None) -> Way:
    """To train on what is left until the nodes are back, and then to start on all."""
    ready = None if restart_s is None else restart_s * resumed.restarts
    return Way(name, ready, resumed.rate, least_repair_s=ready)


def _lost_s(way: Way, times: Times) -> float | None:
    """Training that a way loses, since the last save and until the plan runs on all nodes again.

    Source: derived. In `repair` seconds the plan trains as many; a way trains `rate` of those from
    `ready` on. Then all start once more, but for spare nodes, with which nothing changes.
    """
    back = times.since_save_s
    if way.name != "spare nodes":
        if times.repair_s is None or times.restart_s is None or way.ready_s is None:
            return None
        trained = 0.0 if way.name == "wait" else max(0.0, times.repair_s - way.ready_s)
        return back + times.repair_s - way.rate * trained + times.restart_s
    return _sum(back, times.restart_s)


def _sum(*terms: float | None) -> float | None:
    known = [one for one in terms if one is not None]
    return sum(known) if len(known) == len(terms) else None


def _break_even_s(first: Way, second: Way) -> float | None:
    """Seconds of repair from which the second, slower to start and faster, loses less.

    Source: derived: until the repair a way trains `rate * (repair - ready)`, linear in its time;
    from where both lines cross the faster one trains more.
    """
    if first.ready_s is None or second.ready_s is None or second.rate <= first.rate:
        return None
    gained = second.rate * second.ready_s - first.rate * first.ready_s
    return max(second.ready_s, gained / (second.rate - first.rate))


def spare_worth(found: Replan, odds: float | None) -> SpareWorth | None:
    """Of one of n nodes as a spare for the other n - 1; null: fewer nodes train as fast.

    With a spare the run trains as fast as the best plan of n - 1 nodes at any time; without it as
    the plan of n, and while a node is away as what loads its checkpoint. `odds` is how long a node
    is away over how long it runs.

    Source: derived: 1 - f + f rate of going on = rate of n - 1. Away are 1 - (1 + odds)^-n of the
    time, as nodes fail each by itself: Barlow and Proschan, Mathematical Theory of Reliability,
    1965, chapter 5.
    """
    loading = [one.rate for name in GO_ON.values() if (one := found.plans[name])]
    meanwhile = max(loading, default=0.0)
    fewer = max(meanwhile, found.anew.rate if found.anew else 0.0)
    if fewer >= 1:
        return None
    nodes = found.job.islands * found.job.cluster.num_nodes
    away = None if odds is None else -math.expm1(-nodes * math.log1p(odds))
    least = (1 - fewer) / (1 - meanwhile)
    return SpareWorth(least, away, None if away is None else away > least)

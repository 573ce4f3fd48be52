"""What one rank needs for its passes, between what lies ahead of them and behind them."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.columns import FloatColumn, FloatMatrix, OpStagePasses
from trainplan.costmodel.timeline.release_times import (
    AFTER,
    BACKWARD,
    BEFORE,
    FORWARD,
    Route,
    release_times,
)


class OneMachineOps(NamedTuple):
    """Ops of one rank, or any other work of it, and what surrounds each; columns."""

    heads: OpStagePasses
    """Seconds before which it cannot start."""
    seconds: FloatColumn
    tails: OpStagePasses
    """Seconds that are left at least when it ends."""


MOST_OPS = 4_000
"""Ops of a rank that are bounded by their best set; of more, by nested sets alone.

Source: assumed; some hundredths of a second.
"""


@dataclass(frozen=True, slots=True)
class HeadsAndTails:
    """A walk with the least seconds ahead of and behind every op of it."""

    route: Route
    heads: FloatMatrix
    """As of `release_times`."""
    tails: FloatMatrix
    """As of `release_times` on the walk backwards: of the k-th last end, what is left then."""

    def ops(self, stage: int) -> Iterator[OneMachineOps]:
        """The ops of one stage.

        Source: ops of a kind on a stage are alike: the k-th to start is the k-th to end, so it has
        the k-th head, and the k-th tail counted from the last of the mirrored walk.
        """
        route = self.route
        for op, mirrored, seconds in (
            (FORWARD, BACKWARD, route.forward),
            (BACKWARD, FORWARD, route.backward),
            (AFTER, BEFORE, route.after),
        ):
            heads, tails = self.heads[op, stage], self.tails[mirrored, stage, ::-1]
            yield OneMachineOps(heads, np.full(len(heads), seconds[stage]), tails)

    def freeing_tails(self, stage: int) -> FloatColumn:
        """Seconds left at least when a stage frees its k-th last activations.

        Source: in the mirrored walk that is the start of the weight gradient; one of no length ends
        with the input gradient, whose mirror image is a forward pass.
        """
        mirrored = BEFORE if self.route.after[stage] > 0 else FORWARD
        return np.asarray(self.tails[mirrored, stage])

    def lifetime(self, stage: int) -> float:
        """Least seconds that a stage holds the activations of one micro batch.

        Source: docs/explanation/schedules.md, "One memory": from the forward pass along the walk to
        the end of the weight gradient.
        """
        freed = self.heads[AFTER, stage, 0] + self.route.after[stage]
        return float(freed - self.heads[FORWARD, stage, 0])


def heads_and_tails(route: Route) -> HeadsAndTails:
    """Both ends of a walk. Source: as `release_times`."""
    return HeadsAndTails(route, release_times(route), release_times(route.backwards()))


def rank_bound(routes: list[HeadsAndTails], rank: int, other_seconds: float = 0.0) -> float:
    """Seconds that one rank needs for its stages of all walks, and for `other_seconds` other work.

    Source: docs/explanation/schedules.md, "One rank" and "One memory".
    """
    hosted = [(ends, int(s)) for ends in routes for s in np.flatnonzero(ends.route.rank == rank)]
    if not hosted:
        return 0.0
    parts = [part for ends, stage in hosted for part in ends.ops(stage)]
    if other_seconds:
        soonest = min(part.heads.min() for part in parts)
        parts.append(OneMachineOps(np.array([soonest]), np.array([other_seconds]), np.zeros(1)))
    tasks = OneMachineOps(*map(np.concatenate, zip(*parts, strict=True)))
    few = len(tasks.heads) <= MOST_OPS
    work = one_machine_bound(tasks) if few else nested_bound(tasks)
    return max(work, memory_bound(hosted))


def nested_bound(tasks: OneMachineOps) -> float:
    """As `one_machine_bound`, over sets of all tasks whose heads, or tails, are long enough.

    Source: one machine runs any set of tasks between its shortest head and its shortest tail, so
    each set bounds; these sets are the beginnings of the orders of falling heads and of falling
    tails.
    """
    heads, seconds, tails = tasks
    bounds = []
    for ahead, behind in ((heads, tails), (tails, heads)):
        order = np.argsort(-ahead, kind="stable")
        least = np.minimum.accumulate(behind[order])
        bounds.append((ahead[order] + np.cumsum(seconds[order]) + least).max())
    return float(max(bounds))


def one_machine_bound(tasks: OneMachineOps) -> float:
    """Seconds in which one machine can do all tasks, if it may interrupt them.

    At any time it works on the task with the longest tail of those it may run. The result is the
    largest sum, over sets of tasks, of the shortest head, all work and the shortest tail.
    Source: Carlier, The one-machine sequencing problem, EJOR 11, 1982, section 3.
    """
    columns = (column.tolist() for column in tasks)
    waiting = sorted(zip(*columns, strict=True), reverse=True)
    ready: list[tuple[float, float]] = []
    now = bound = 0.0
    while waiting or ready:
        if not ready:
            now = max(now, waiting[-1][0])
        while waiting and waiting[-1][0] <= now:
            _, seconds, behind = waiting.pop()
            heappush(ready, (-behind, seconds))
        tail, left = heappop(ready)
        stop = waiting[-1][0] if waiting else now + left
        if now + left > stop:
            heappush(ready, (tail, left - (stop - now)))
            now = stop
        else:
            now += left
            bound = max(bound, now - tail)
    return bound


def memory_bound(hosted: list[tuple[HeadsAndTails, int]]) -> float:
    """Seconds in which one rank's memory can hold all activations for their lifetimes.

    Each place in memory waits for its first activations and idles after its last.

    Source: docs/explanation/schedules.md, "One memory".
    """
    route = hosted[0][0].route
    held = sum(ends.route.passes * ends.lifetime(stage) for ends, stage in hosted)
    first = np.sort(np.concatenate([ends.heads[FORWARD, stage] for ends, stage in hosted]))
    last = np.sort(np.concatenate([ends.freeing_tails(stage) for ends, stage in hosted]))
    memory = min(len(first), int(route.memory[hosted[0][1]]))
    return float((held + first[:memory].sum() + last[:memory].sum()) / memory)

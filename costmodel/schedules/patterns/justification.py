"""A full schedule from a rough one: every op moves into the first gap of its rank that it fits in.

Doing so from the start, then from the end, and so on, shortens warm-up and drain.
Source: Valls, Ballestin and Quintanilla, European Journal of Operational Research 165, 2005
(forward-backward improvement).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from trainplan.costmodel.program import Pass
from trainplan.costmodel.schedules.patterns.stage_line import FORWARD, OPS, WEIGHT, Line, Order

MOST_ROUNDS = 8
"""Times there and back; few schedules gain from more than three. Source: measured."""


class Slot(NamedTuple):
    """When an op runs; seen from the end of the schedule, times are negative."""

    start: float
    end: float
    op: Pass


class Rank:
    """Times at which a rank is busy, and how much it holds."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.busy: list[Slot] = []
        self.changes: list[tuple[float, int]] = []

    def gap(self, ready: float, duration: float) -> float:
        """First time from `ready` on at which the rank is free for so long."""
        start = ready
        at = bisect_left(self.busy, ready, key=lambda slot: slot.start)
        if at > 0:
            start = max(start, self.busy[at - 1].end)
        for slot in self.busy[at:]:
            if slot.start >= start + duration:
                break
            start = max(start, slot.end)
        return start

    def room(self) -> float:
        """First time from which on there is room for one more activation."""
        held = sum(change for _, change in self.changes)
        if held >= self.limit:
            return inf
        for time, change in reversed(self.changes):
            held -= change
            if held >= self.limit:
                return time
        return -inf


class Justification:
    """One pass over all ops, in the direction of time or against it."""

    def __init__(self, of: Line, *, against: bool) -> None:
        self.of, self.against = of, against
        self.takes, self.gives = (WEIGHT, FORWARD) if against else (FORWARD, WEIGHT)
        self.ranks = [Rank(of.limit) for _ in range(of.pp)]
        self.ends: dict[Pass, float] = {}

    def place(self, sequence: Iterable[Pass]) -> list[Slot]:
        """Place ops one by one; `sequence` is sorted as in a schedule that fits the memory.

        So when an op needs room, what makes it has been placed.
        """
        slots: list[Slot] = []
        for op in sequence:
            rank = self.ranks[self.of.rank_of[op.stage]]
            ready = self._ready(op)
            if op.kind == self.takes:
                ready = max(ready, rank.room())
            duration = self.of.durations[op.kind][op.stage]
            start = rank.gap(ready, duration)
            end = self.ends[op] = start + duration
            insort(rank.busy, Slot(start, end, op))
            if op.kind == self.takes:
                insort(rank.changes, (start, 1))
            elif op.kind == self.gives:
                insort(rank.changes, (end, -1))
            slots.append(Slot(start, end, op))
        return slots

    def _ready(self, op: Pass) -> float:
        """When everything an op waits for in this direction has come to its end."""
        before = op.microbatch + (1 if self.against else -1)
        times = [self.ends.get(op._replace(microbatch=before), 0.0)]
        for kind, stage in self._waits_for(op):
            latency = self.of.latency(stage, op.stage)
            times.append(self.ends[Pass(OPS[kind], stage, op.microbatch)] + latency)
        return max(times)

    def _waits_for(self, op: Pass) -> list[tuple[int, int]]:
        if self.against:
            return self.of.consumers(op.kind, op.stage)
        source = self.of.source(op.kind, op.stage)
        return [source] if source is not None else []


class Justified(NamedTuple):
    """An order, and when it ends."""

    order: Order
    makespan: float


def justified(of: Line, sequence: Sequence[Pass]) -> Justified:
    """Order after squeezing a sequence there and back until that gains nothing.

    `sequence` holds every op once, as they start in a schedule that fits the memory.
    """
    slots = Justification(of, against=False).place(sequence)
    best = max(slot.end for slot in slots)
    for _ in range(MOST_ROUNDS):
        late = Justification(of, against=True).place(other_way(slots))
        again = Justification(of, against=False).place(other_way(late))
        end = max(slot.end for slot in again)
        if end >= best * (1 - 1e-9):
            break
        slots, best = again, end
    slots.sort(key=lambda slot: (slot.start, slot.end))
    rows: Order = [[] for _ in range(of.pp)]
    for slot in slots:
        rows[of.rank_of[slot.op.stage]].append(slot.op)
    return Justified(rows, best)


def other_way(slots: list[Slot]) -> list[Pass]:
    """Ops that end last go first; where they take no time, those placed last."""
    by_end = sorted(slots, key=lambda slot: (slot.end, slot.start))
    return [slot.op for slot in reversed(by_end)]

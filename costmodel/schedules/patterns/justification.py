"""A full schedule from a rough one: every op moves into the first gap of its rank that it fits in.

Doing so from the start, then from the end, and so on, shortens warm-up and drain.
Source: Valls, Ballestin and Quintanilla, European Journal of Operational Research 165, 2005
(forward-backward improvement).
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

from trainplan.costmodel.program import Op, Pass, Program, program_of

FORWARD, BACKWARD, WEIGHT = int(Op.FORWARD), int(Op.BACKWARD), int(Op.WEIGHT)
KINDS = (FORWARD, BACKWARD, WEIGHT)
OPS = (Op.FORWARD, Op.BACKWARD, Op.WEIGHT)
Order = list[list[Pass]]
"""Ops of each rank, in issue order."""


@dataclass(frozen=True)
class Line:
    """A pipeline whose backward passes are split; durations in any unit."""

    stages: Sequence[Sequence[int]]
    """Virtual stages of every rank, in the order of the pipeline."""
    num_microbatches: int
    durations: Sequence[Sequence[float]]
    """Of F, B and W of every virtual stage; shape (kind, stage)."""
    p2p: float
    """Of a message between ranks."""
    limit: int
    """Activations a rank may hold, of one micro batch through one virtual stage each."""

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return len(self.stages)

    @cached_property
    def num_stages(self) -> int:
        """Virtual stages."""
        return sum(map(len, self.stages))

    @cached_property
    def rank_of(self) -> list[int]:
        """Rank of every virtual stage."""
        pairs = [(stage, rank) for rank, row in enumerate(self.stages) for stage in row]
        return [rank for _, rank in sorted(pairs)]

    def source(self, kind: int, stage: int) -> tuple[int, int] | None:
        """Kind and stage of the op whose output an op needs."""
        if kind == WEIGHT:
            return BACKWARD, stage
        if kind == BACKWARD:
            last = stage == self.num_stages - 1
            return (FORWARD, stage) if last else (BACKWARD, stage + 1)
        return (FORWARD, stage - 1) if stage > 0 else None

    def consumers(self, kind: int, stage: int) -> list[tuple[int, int]]:
        """Kinds and stages of the ops that need the output of an op."""
        around = [(FORWARD, stage + 1), (BACKWARD, stage), (BACKWARD, stage - 1), (WEIGHT, stage)]
        return [
            (other, at)
            for other, at in around
            if 0 <= at < self.num_stages and self.source(other, at) == (kind, stage)
        ]

    def latency(self, stage: int, other: int) -> float:
        """Seconds of a message between two stages.

        Source: stages of one rank share its memory and send nothing; between two ranks a message
        takes `p2p`, whichever stages they are of.
        """
        return self.p2p if self.rank_of[stage] != self.rank_of[other] else 0.0

    def program(self, order: Order) -> Program:
        """The program that runs ops in a given order."""
        return program_of(order, self.num_stages, self.num_microbatches)


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

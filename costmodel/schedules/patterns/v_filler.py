"""Fill a V: ranks take passes in the order of a repeated block, and W where they would wait."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from trainplan.costmodel.program import Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.patterns.frames import B0, B1, F0, F1, W0, W1, Turn, walked

TURNS: tuple[Turn, ...] = (F0, F1, B1, B0, W1, W0)
"""Ops by number: the way of a micro batch, F down and up the V, B down and up; then W."""
WAY = 4
"""Ops on the way; number `way + 2` is the W of number `way`, a B."""
FIRST_BACK = TURNS.index(B1)
"""The B with which a rank starts the way back."""
INTERVAL = 6
"""Slots from one block to the next: ops of a micro batch on one rank."""
NEVER = 1 << 62
"""Stands for a time that is not known."""
Rows = list[list[int]]
"""Numbers of the ops of each rank, in order."""
Blocks = Sequence[Sequence[int]]
"""Slots of the first micro batch's way, for each rank."""


class Room(NamedTuple):
    """What ranks may hold, in passes in flight."""

    limit: int
    """Of both virtual stages of a rank together."""
    down: Sequence[int]
    """Of the virtual stage on the way down, for each rank."""


class Filler:
    """One run; all times are whole numbers.

    Of the passes that are ready, a rank takes that of the earliest slot. W frees memory that a
    ready F waits for, or fills the time to the next arrival that is known; with `patience` only
    where half of it fits (1), or all of it (2).
    """

    def __init__(
        self, shape: Shape, room: Room, relative: RelativeSeconds, patience: int = 0
    ) -> None:
        self.shape, self.room, self.relative, self.patience = shape, room, relative, patience
        self.seconds = [relative[turn.kind] for turn in TURNS]
        ranks = range(shape.pp)
        self.rows: Rows = [[] for _ in ranks]
        self.sequence: list[tuple[int, int]] = []
        """Rank and number of every op, as they started."""
        self.clock = [0] * shape.pp
        self.arrivals: list[list[list[int]]] = [[[] for _ in range(WAY)] for _ in ranks]
        """When the inputs of each rank's passes arrive, as far as they have been sent."""
        self.arrivals[0][0] = [0] * shape.num_microbatches
        self.started = [[0] * WAY for _ in ranks]
        self.held = [[0, 0] for _ in ranks]
        self.pending: Rows = [[] for _ in ranks]
        """W to run, the oldest first."""
        self.agenda = [(0, rank) for rank in ranks]
        self.blocks: Blocks = [range(WAY) for _ in ranks]
        self.fixed: Rows | None = None
        self.places_weights = True

    def fill(self, blocks: Blocks) -> Filler:
        """Run all ranks, each by the slots of its block."""
        self.blocks = blocks
        return self._run()

    def follow(self, rows: Rows) -> Filler:
        """Run all ranks, each in a given order; where the rows have no W, it is filled in."""
        self.fixed = rows
        self.places_weights = max(map(max, rows)) < WAY
        return self._run()

    @property
    def complete(self) -> bool:
        """Did every rank come to its end?"""
        return all(len(row) == INTERVAL * self.shape.num_microbatches for row in self.rows)

    @property
    def makespan(self) -> int:
        """End of the last op.

        Source: the clock of a rank is the end of its last op, and the schedule has ended when all
        ranks have.
        """
        return max(self.clock)

    @property
    def passes(self) -> Rows:
        """The order without W."""
        return [[op for op in row if op < WAY] for row in self.rows]

    def program(self) -> Program:
        """The order as a program."""
        return program_of(self.rows, self.shape)

    def _run(self) -> Filler:
        while self.agenda:
            now, rank = heappop(self.agenda)
            if now < self.clock[rank]:
                continue
            op, again = self._next(rank, now)
            if op is not None:
                again = self._start(rank, now, op)
            if again < NEVER:
                heappush(self.agenda, (again, rank))
        return self

    def _next(self, rank: int, now: int) -> tuple[int | None, int]:
        """The op to start now; or none, and when to ask again."""
        best, earliest, soonest, crowded = None, NEVER, NEVER, False
        for op in self._allowed(rank):
            if op >= WAY:
                return op, NEVER
            number = self.started[rank][op]
            if number >= len(self.arrivals[rank][op]):
                continue
            if op < 2 and not self._has_room(rank, op):
                crowded |= sum(self.held[rank]) >= self.room.limit
                continue
            arrival, slot = self.arrivals[rank][op][number], self.blocks[rank][op]
            if arrival > now:
                soonest = min(soonest, arrival)
            elif slot + INTERVAL * number < earliest:
                best, earliest = op, slot + INTERVAL * number
        if best is not None or not self.pending[rank] or not self.places_weights:
            return best, soonest
        fits = 2 * (soonest - now) >= self.patience * self.relative.weight
        return (self.pending[rank][0], NEVER) if crowded or fits else (None, soonest)

    def _allowed(self, rank: int) -> Sequence[int]:
        """Ops the rank may take next, ready or not."""
        if self.fixed is None:
            return range(WAY)
        done = sum(self.started[rank]) if self.places_weights else len(self.rows[rank])
        return self.fixed[rank][done : done + 1]

    def _has_room(self, rank: int, op: int) -> bool:
        within = op > 0 or self.held[rank][0] < self.room.down[rank]
        return within and sum(self.held[rank]) < self.room.limit

    def _start(self, rank: int, now: int, op: int) -> int:
        """Run an op; returns its end."""
        self.rows[rank].append(op)
        self.sequence.append((rank, op))
        end = self.clock[rank] = now + self.seconds[op]
        if op >= WAY:
            self.pending[rank].remove(op)
            self.held[rank][TURNS[op].chunk] -= 1
            return end
        self.started[rank][op] += 1
        if op < 2:
            self.held[rank][op] += 1
        else:
            self.pending[rank].append(op + 2)
        self._send(rank, op, end)
        return end

    def _send(self, rank: int, op: int, end: int) -> None:
        """Even ops go down the V, odd ones up; the end of one way is the start of the next."""
        receiver = rank - 1 if op % 2 else rank + 1
        if 0 <= receiver < self.shape.pp:
            arrival = end + self.relative.p2p
            self.arrivals[receiver][op].append(arrival)
            heappush(self.agenda, (max(arrival, self.clock[receiver]), receiver))
        elif op + 1 < WAY:
            self.arrivals[rank][op + 1].append(end)


def program_of(rows: Rows, shape: Shape) -> Program:
    """The orders of all ranks as a program."""
    return walked([[TURNS[op] for op in row] for row in rows], shape)


def comes_to_its_end(rows: Rows, limit: int) -> bool:
    """Can ranks that hold at most so many passes run their ops, W among them, in these orders?

    Source: derived; durations say when an op runs, not whether: its input comes, or never does.
    """
    sent, at, held = [[0] * WAY for _ in rows], [0] * len(rows), [0] * len(rows)
    sent[0][0], waiting = len(rows[0]), list(range(len(rows)))
    while waiting:
        rank = waiting.pop()
        begin = at[rank]
        for op in rows[rank][begin:]:
            if op < WAY and (not sent[rank][op] or (op < 2 and held[rank] == limit)):
                break
            at[rank] += 1
            held[rank] += (op < 2) - (op >= WAY)
            if op < WAY:
                sent[rank][op] -= 1
                receiver = rank - 1 if op % 2 else rank + 1
                if 0 <= receiver < len(rows):
                    sent[receiver][op] += 1
                elif op + 1 < WAY:
                    sent[rank][op + 1] += 1
        if at[rank] > begin:
            waiting += [one for one in (rank - 1, rank + 1) if 0 <= one < len(rows)]
    return at == [len(row) for row in rows]

"""ZB-1p and ZB-2p: backward passes split in two, ordered by a heuristic under a memory limit.

The input gradient (B) goes on its way at once; the weight gradient (W) fills the time a rank would
wait. The order is the best of a few: two written by hand (ZB-H1, ZB-H2) and those of a greedy
search with three yes-or-no choices, timed with the relative durations of the job.
Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, sections 2 and 3.1.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import FloatColumn, IntMatrix
from trainplan.costmodel.program import Op, Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.patterns.frames import single_stage_program, weights_behind
from trainplan.costmodel.schedules.programs.one_forward_one_backward import in_turn
from trainplan.costmodel.schedules.schedule import Schedule, Work, split_backward_bound

F, B, W = int(Op.FORWARD), int(Op.BACKWARD), int(Op.WEIGHT)
PASSES = (Op.FORWARD, Op.BACKWARD, Op.WEIGHT)
Kinds = list[list[int]]
"""Kinds of the ops of each rank, in order; every kind walks the micro batches in turn."""


class PriorityRule(NamedTuple):
    """Choices the heuristic searches over. Source: Qi et al., section 3.1."""

    forward_before_first_backward: bool
    """In the warm-up, start one more F although it ends after the first B arrives."""
    alternate: bool
    """After a B prefer an F that is ready over the next B."""
    fill: bool
    """Fill a gap shorter than W where waiting would make this rank the one that waited most."""


def handcrafted(pp: int, num_microbatches: int, depth: int) -> Kinds:
    """ZB-H1 (depth 1: p micro batches at most) and ZB-H2 (depth 2: 2p - 1).

    `depth` (p - 1 - r) forward passes, then F, B and W in turn, W `depth` r turns behind B.
    Source: Qi et al., section 2, figures 2 and 3.
    """
    rank, shape = np.arange(pp), Shape(pp, 1, num_microbatches)
    warmup = depth * (pp - 1 - rank)
    kinds: Kinds = weights_behind(
        in_turn(num_microbatches), warmup, depth * rank, shape
    ).kind.tolist()
    return kinds


class Greedy:
    """Places the op each rank runs next, in order of time; all times are whole numbers."""

    def __init__(
        self, shape: Shape, limit: int, relative: RelativeSeconds, priority: PriorityRule
    ) -> None:
        pp, self.m = shape.pp, shape.num_microbatches
        self.limit, self.relative, self.priority = limit, relative, priority
        self.kinds: Kinds = [[] for _ in range(pp)]
        self.arrivals: tuple[list[list[int]], ...] = tuple([[] for _ in range(pp)] for _ in (F, B))
        """When the input of each rank's F and B arrives, as far as it has been sent."""
        self.arrivals[F][0] = [0] * self.m
        self.done = tuple([0] * pp for _ in (F, B, W))
        self.clock, self.idle, self.turn = [0] * pp, [0] * pp, [W] * pp

    def order(self) -> Kinds:
        """Run all ranks to their end."""
        pp = len(self.kinds)
        agenda: list[tuple[float, int]] = [(0, rank) for rank in range(pp)]
        waiting = [True] * pp
        while agenda:
            time, rank = heappop(agenda)
            waiting[rank], now = False, int(time)
            if self.done[W][rank] == self.m:
                continue
            op, again = self._next(rank, now)
            if op is not None:
                again = self._run(rank, now, op)
                receiver = rank + 1 - 2 * op
                if op != W and 0 <= receiver < pp and not waiting[receiver]:
                    heappush(agenda, (max(now, self.clock[receiver]), receiver))
                    waiting[receiver] = True
            if again < inf:
                heappush(agenda, (again, rank))
                waiting[rank] = True
        return self.kinds

    def _run(self, rank: int, now: int, op: int) -> int:
        if self.kinds[rank]:
            self.idle[rank] += now - self.clock[rank]
        end = now + self.relative[op]
        self.kinds[rank].append(op)
        self.done[op][rank] += 1
        self.clock[rank] = end
        if op == W:
            return end
        self.turn[rank] = op
        if op == F and rank == len(self.kinds) - 1:
            self.arrivals[B][rank].append(end)
        elif op == F or rank > 0:
            self.arrivals[op][rank + 1 - 2 * op].append(end + self.relative.p2p)
        return end

    def _next(self, rank: int, now: int) -> tuple[int | None, float]:
        """The op to start now; or none, and when to ask again if that is known."""
        started, sent, freed = (done[rank] for done in self.done)
        forwards, backwards = self.arrivals[F][rank], self.arrivals[B][rank]
        forward = forwards[started] if started < len(forwards) else inf
        backward = backwards[sent] if sent < len(backwards) else inf
        room, ready = started - freed < self.limit, forward <= now
        if backward <= now and not (self.priority.alternate and ready and room and self.turn[rank]):
            return B, inf
        if ready and room and not (sent == 0 and self._holds(backward, now)):
            return F, inf
        if sent == freed:
            return None, min(backward, forward if room and not ready else inf)
        if ready and not room:
            return W, inf
        following = min(backward, self._earliest(B, rank, now) if sent < self.m else inf)
        if room and not ready and started < self.m:
            following = min(following, forward, self._earliest(F, rank, now))
        gap, known = following - now, min(backward, forward if room and not ready else inf)
        if gap >= self.relative.weight or self._late(rank, gap) or known == inf:
            return W, inf
        return None, known

    def _earliest(self, op: int, rank: int, now: int) -> float:
        """No input that has not been sent yet arrives earlier; infinite if all have been."""
        sender = rank - 1 + 2 * op
        if not 0 <= sender < len(self.kinds) or len(self.arrivals[op][rank]) > self.done[op][rank]:
            return inf
        return max(self.clock[sender], now) + self.relative[op] + self.relative.p2p

    def _holds(self, backward: float, now: int) -> bool:
        held = not self.priority.forward_before_first_backward
        return held and backward < now + self.relative.forward

    def _late(self, rank: int, gap: float) -> bool:
        return self.priority.fill and self.idle[rank] + gap > max(self.idle)


def timed(kinds: Kinds, relative: RelativeSeconds) -> tuple[int, int]:
    """Longest time of any rank from its first op to its last, and the end of the last op.

    Source: an op starts when the op before it on its rank and its input have ended, a message
    later: the longest path through these edges.
    """
    last, p2p = len(kinds) - 1, relative.p2p
    ends: tuple[list[list[int]], ...] = tuple([[] for _ in kinds] for _ in PASSES)
    position, clock = [0] * len(kinds), [0] * len(kinds)
    moved = True
    while moved:
        moved = False
        for rank, ops in enumerate(kinds):
            while position[rank] < len(ops):
                op = ops[position[rank]]
                number, own = len(ends[op][rank]), op == W or (op == B and rank == last)
                source = rank if own else rank - 1 if op == F else rank + 1
                sent = ends[F if own else op][source] if source >= 0 else [0] * (number + 1)
                if number >= len(sent):
                    break
                arrival = sent[number] + p2p * (source not in (rank, -1))
                clock[rank] = max(clock[rank], arrival) + relative[op]
                ends[op][rank].append(clock[rank])
                position[rank], moved = position[rank] + 1, True
    starts = [first[0] - relative.forward for first in ends[F]]
    spans = [end - start for end, start in zip(clock, starts, strict=True)]
    return max(spans), max(clock)


def _greedy(
    shape: Shape, limit: int, relative: RelativeSeconds, rule: PriorityRule, num_microbatches: int
) -> Kinds:
    shape = shape._replace(num_microbatches=num_microbatches)
    return Greedy(shape, limit, relative, rule).order()


def candidates(
    shape: Shape, limit: int, relative: RelativeSeconds
) -> Iterator[Callable[[int], Kinds]]:
    """Orders for any number of micro batches, of which each rank holds at most `limit`."""
    for depth in (1, 2):
        if depth * (shape.pp - 1) < limit:
            yield partial(handcrafted, shape.pp, depth=depth)
    for choices in product((False, True), repeat=3):
        yield partial(_greedy, shape, limit, relative, PriorityRule(*choices))


SHORT = 2
"""Times the micro batches that ranks may hold, pp at least, that choose the order of a longer step.

Source: measured at 16 pp micro batches, p = 4, 8 and 16, 30 sets of durations: always as good as
the best order of the whole step.
"""


@lru_cache(maxsize=256)
def best_candidate(
    shape: Shape, limit: int, relative: RelativeSeconds
) -> tuple[Callable[[int], Kinds], Kinds]:
    """The candidate whose busiest rank ends soonest after its own first op; then the soonest.

    With its order of this shape.
    """
    tried = [(one, one(shape.num_microbatches)) for one in candidates(shape, limit, relative)]
    return min(tried, key=lambda pair: timed(pair[1], relative))


@lru_cache(maxsize=256)
def best_order(shape: Shape, limit: int, relative: RelativeSeconds) -> Kinds:
    """Of the best candidate; a long step has that of a shorter one.

    What is taken off are whole groups of `pp` micro batches.
    """
    pp, m = shape.pp, shape.num_microbatches
    short = min(m, SHORT * max(1, -(-limit // pp)) * pp + m % pp)
    best, kinds = best_candidate(shape._replace(num_microbatches=short), limit, relative)
    return kinds if short == m else best(m)


def program(shape: Shape, relative: RelativeSeconds, *, times: int) -> Program:
    """Ops of every rank when no rank may hold more than `times` pp micro batches."""
    kinds = best_order(shape, times * shape.pp, relative)
    return single_stage_program(kinds, shape.num_microbatches)


def held(num_microbatches: int, layers: IntMatrix, *, times: int) -> FloatColumn:
    """Passes in flight: on every rank the limit, or all micro batches of a short step.

    Ranks put W off until the memory is needed, so each fills what it may.
    Source: Qi et al., section 3.1; tested against the program.
    """
    limit = float(min(num_microbatches, times * len(layers)))
    return np.full(layers.shape, limit)


def bound(work: Work, *, times: int) -> FloatColumn:
    """Seconds no order beats. Source: as `split_backward_bound`."""
    return split_backward_bound(work, times * work.pp)


def limited_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank when no rank may hold more than `memory_limit` micro batches; default pp.

    Raises:
        SpecError: The limit leaves no room for one micro batch.
    """
    limit = shape.pp if shape.memory_limit is None else shape.memory_limit
    if limit < 1:
        raise SpecError(
            f"zb-auto does not run with memory_limit={limit}: every rank holds one micro batch at "
            "least; set memory_limit to 1 or more"
        )
    return single_stage_program(best_order(shape, limit, relative), shape.num_microbatches)


def _limited(times: int) -> Schedule:
    """The schedule whose ranks hold up to `times` what 1F1B holds on its first."""
    return Schedule(
        partial(program, times=times),
        partial(held, times=times),
        partial(bound, times=times),
        rounds_to_fill=times,
        splits_backward=True,
        adapts=True,
    )


SAME_MEMORY = _limited(1)
"""ZB-1p: the memory of 1F1B."""
TWICE_THE_MEMORY = _limited(2)
"""ZB-2p: twice the memory of 1F1B, 2p micro batches. Source: Qi et al., section 4.1; the memory of
table 4 is that of 2p micro batches, not of the 2p - 1 of ZB-H2."""

UNDER_A_LIMIT = replace(SAME_MEMORY, program=limited_program, options=frozenset({"memory_limit"}))
"""ZB-auto: the memory that is stated, or that of 1F1B. Source: Qi et al., section 3.1."""

"""How soon the k-th pass of every kind through every stage can start, at the very best.

Order the passes of one kind through one stage by their start. The k-th of them has waited for k
passes of everything that precedes it, which makes inequalities between k-th starts: they hold for
every schedule, whichever micro batch is the k-th. Read backwards in time the same inequalities
bound what is left to do after a pass. docs/explanation/schedules.md derives them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.columns import FloatColumn, FloatMatrix, IntColumn, OpStagePasses

BEFORE, FORWARD, BACKWARD, AFTER = range(4)
"""Ops of a stage on the walk: activations are held from the start of BEFORE to the end of AFTER."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way of every micro batch through the stages and back; columns have one row a stage."""

    rank: IntColumn
    before: FloatColumn
    """Seconds of an op ahead of the forward pass that already holds the activations."""
    forward: FloatColumn
    backward: FloatColumn
    """Seconds until the gradient is sent."""
    after: FloatColumn
    """Seconds of an op behind the backward pass that still holds the activations."""
    hop: FloatColumn
    """Seconds of the message to the next stage and back; shape (stage - 1,)."""
    memory: IntColumn
    """Activations that the stage's rank may hold."""
    passes: int

    def backwards(self) -> Route:
        """The walk as a film played backwards shows it."""
        return replace(
            self, before=self.after, forward=self.backward, backward=self.forward, after=self.before
        )

    def neighbours(self) -> list[IntColumn]:
        """Stages of each rank of the walk, shallowest first."""
        return [np.flatnonzero(self.rank == rank) for rank in np.unique(self.rank)]


class Arc(NamedTuple):
    """The k-th start of one op is `seconds` or more behind the (k - lag)-th start of another."""

    of: tuple[int, int]
    on: tuple[int, int]
    lag: int
    seconds: float


def release_times(route: Route) -> OpStagePasses:
    """Seconds before which the k-th op cannot start.

    Source: docs/explanation/schedules.md, "The k-th start".
    """
    start = np.zeros((4, len(route.rank), route.passes))
    chain, room, choices = _chain(route), list[Arc](), list[list[list[Arc]]]()
    if route.passes * _pairs(route) <= MOST_ARCS:
        room = [arc for arc in _both_ways(route) if arc.lag < route.passes]
    if room and route.passes * _shares(route) <= MOST_ARCS:
        choices = [choice for own in route.neighbours() for choice in _choices(route, own)]
    order = {node: place for place, node in enumerate(_nodes(len(route.rank)))}
    arcs = sorted(chain + room, key=lambda arc: order[arc.of])
    _settle(start, [arc for arc in arcs if arc.lag < route.passes], [], range(1))
    for own in route.neighbours():
        _load(route, own, start)
    if room:
        _settle(start, arcs, choices, range(route.passes))
    else:
        _settle_chain(start, arcs)
    return start


MOST_ARCS = 1_000_000
"""Waits for memory that are followed, some seconds; a larger program is bounded without them.

Source: assumed; to leave any wait out keeps a bound valid.
"""


def _pairs(route: Route) -> int:
    """About how many waits for memory each micro batch has."""
    return 4 * sum(len(own) ** 2 for own in route.neighbours())


def _shares(route: Route) -> int:
    """About how many waits there are to choose from for each micro batch."""
    ranks = [(int(route.memory[own[0]]), len(own)) for own in route.neighbours()]
    return sum(5 * (m // place + 1) for m, stages in ranks for place in range(2, stages + 1))


def _settle_chain(start: FloatMatrix, arcs: list[Arc]) -> None:
    """As `_settle`, for waits on the same number, or on the op's own number before.

    `arcs` are sorted by the op that waits, in an order in which ops can run.
    """
    number = np.arange(start.shape[2])
    for (op, stage), group in groupby(arcs, key=lambda arc: arc.of):
        row, own = start[op, stage], 0.0
        for _, (other, where), lag, seconds in group:
            if lag:
                own = seconds
            else:
                row = np.maximum(row, start[other, where] + seconds)
        start[op, stage] = np.maximum.accumulate(row - number * own) + number * own


def _nodes(stages: int) -> list[tuple[int, int]]:
    """Ops of one micro batch in an order in which it can run them."""
    up, down = range(stages), range(stages - 1, -1, -1)
    return [
        *((BEFORE, stage) for stage in up),
        *((FORWARD, stage) for stage in up),
        *((BACKWARD, stage) for stage in down),
        *((AFTER, stage) for stage in up),
    ]


def _settle(
    start: FloatMatrix, arcs: list[Arc], choices: list[list[list[Arc]]], numbers: range
) -> None:
    """Raise starts until all waits hold, and of each choice those of one way at least."""
    rows = start.tolist()
    for k in numbers:
        for ways in choices:
            soonest = min(
                max(
                    rows[other][where][k - lag] + seconds if lag <= k else 0.0
                    for _, (other, where), lag, seconds in way
                )
                for way in ways
            )
            op, stage = ways[0][0].of
            rows[op][stage][k] = max(rows[op][stage][k], soonest)
        for (op, stage), (other, where), lag, seconds in arcs:
            if lag <= k and rows[other][where][k - lag] + seconds > rows[op][stage][k]:
                rows[op][stage][k] = rows[other][where][k - lag] + seconds
    start[:] = rows


def _chain(route: Route) -> list[Arc]:
    """Waits along the way of a micro batch, and of a rank that runs one op at a time."""
    last = len(route.rank) - 1
    seconds = [route.before, route.forward, route.backward, route.after]
    arcs = [
        Arc((last_op, s), (last_op, s), 1, float(seconds[last_op][s]))
        for last_op in range(4)
        for s in range(last + 1)
    ]
    for s in range(last + 1):
        arcs.append(Arc((FORWARD, s), (BEFORE, s), 0, float(route.before[s])))
        arcs.append(Arc((AFTER, s), (BACKWARD, s), 0, float(route.backward[s])))
        if s < last:
            hop = route.hop[s]
            arcs.append(Arc((FORWARD, s + 1), (FORWARD, s), 0, float(route.forward[s] + hop)))
            down = float(route.backward[s + 1] + hop)
            arcs.append(Arc((BACKWARD, s), (BACKWARD, s + 1), 0, down))
    arcs.append(Arc((BACKWARD, last), (FORWARD, last), 0, float(route.forward[last])))
    return arcs


def _both_ways(route: Route) -> list[Arc]:
    """Waits for memory, found forwards in time and backwards."""
    seconds = [route.before, route.forward, route.backward, route.after]
    arcs = [arc for own in route.neighbours() for arc in _memory_arcs(route, own)]
    mirrored = route.backwards()
    for own in mirrored.neighbours():
        for (op, stage), (other, where), lag, between in _memory_arcs(mirrored, own):
            gap = between - seconds[AFTER - other][where] + seconds[AFTER - op][stage]
            arcs.append(Arc((AFTER - other, where), (AFTER - op, stage), lag, float(gap)))
    return arcs


def _memory_arcs(route: Route, own: IntColumn) -> list[Arc]:
    """Waits for memory among stages of one rank. Source: docs/explanation/schedules.md, Room."""
    memory, last = int(route.memory[own[0]]), len(own) - 1
    taken = np.minimum.accumulate(route.before[own])
    arcs = []
    for place, stage in enumerate(own.tolist()):
        arcs.append(Arc((BEFORE, stage), (AFTER, stage), memory, float(route.after[stage])))
        whole = float(route.after[own[0]] + taken[place])
        arcs.append(Arc((FORWARD, stage), (AFTER, int(own[0])), memory - place, whole))
        for other in range(last + 1):
            fewer, more = min(place, other), max(place, other)
            lag = (memory - more - 1) // (fewer + 1) + 1
            for turn in {other, last}:
                seconds = _freed(route, own[other : turn + 1], own)
                at = BACKWARD, int(own[turn])
                new = _entering(route, own, place, lag) if turn == last else 0.0
                arcs.append(Arc((FORWARD, stage), at, lag, seconds + float(taken[place]) + new))
                if place == 0:
                    arcs.append(Arc((BEFORE, stage), at, lag, seconds))
    return arcs


def _choices(route: Route, own: IntColumn) -> list[list[list[Arc]]]:
    """Ways to share a rank's memory when a stage starts, each a list of waits.

    Many micro batches may hold little, or few much: some number `deep` does.

    Source: as `_memory_arcs`.
    """
    memory, last = int(route.memory[own[0]]), len(own) - 1
    taken = np.minimum.accumulate(route.before[own])
    result = []
    for place in range(1, last + 1):
        left, ways = memory - place - 1, []
        if left - left // (place + 1) * place >= route.passes:
            continue
        for deep in range(left // (place + 1) + 1):
            of = FORWARD, int(own[place])
            way = []
            for level, others in ((place, deep), (0, left - deep * place)):
                for turn in {level, last}:
                    seconds = _freed(route, own[level : turn + 1], own) + float(taken[place])
                    seconds += _entering(route, own, place, others + 1) if turn == last else 0.0
                    way.append(Arc(of, (BACKWARD, int(own[turn])), others + 1, seconds))
            seconds = float(route.after[own[0]] + taken[place])
            way.append(Arc(of, (AFTER, int(own[0])), left - deep * place + 1, seconds))
            ways.append(way)
        result.append(ways)
    return result


def _freed(route: Route, back: IntColumn, own: IntColumn) -> float:
    """Least seconds from a backward pass until the rank freed one more for each stage passed.

    Source: derived; the rank runs these backward passes and as many weight gradients in turn.
    """
    shortest = np.sort(route.after[own])[: len(back)]
    return float(route.backward[back].sum() + shortest.sum())


def _entering(route: Route, own: IntColumn, place: int, lag: int) -> float:
    """Seconds of forward passes a rank had no room for before a backward pass `lag` numbers back.

    That backward pass is of its deepest stage; the forward passes precede the start at `place`.
    Source: docs/explanation/schedules.md, Room.
    """
    room = (int(route.memory[own[0]]) - len(own)) // np.arange(1, place + 2) + 1
    count = np.maximum(0, lag + (np.arange(place + 1) < place) - room)
    return float((count * route.forward[own[: place + 1]]).sum())


def _load(route: Route, own: IntColumn, start: FloatMatrix) -> None:
    """Raise starts by the work that a rank has to do first."""
    number = np.arange(route.passes)
    memory = int(route.memory[own[0]])
    begins = start[BEFORE, own, 0].min()
    enter = route.before[own] + route.forward[own]
    first, turn = start[FORWARD, own[0], 0], start[BACKWARD, own[-1], 0]
    early = most(route.before[own], route.passes, memory)
    filled = most(enter, route.passes, memory)
    base = max(begins, first - early, turn - filled)
    for place, stage in enumerate(own.tolist()):
        deeper = own[place + 1 :]
        through = (enter[place + 1 :] + route.backward[deeper]).sum()
        releases = np.maximum(0, (number + 1) * len(own) - memory)
        back = (number + 1) * (enter[: place + 1].sum() + through)
        back = back + number * route.backward[stage]
        back = back + fewest(route.after[own], number + 1, releases)
        start[BACKWARD, stage] = np.maximum(start[BACKWARD, stage], base + back)
        releases = np.maximum(0, (number + 1) * (place + 1) - memory)
        leave = (route.backward + route.after)[own[: place + 1]]
        there = (number + 1) * (enter[:place].sum() + route.before[stage])
        there = there + number * route.forward[stage] + releases * leave.min()
        there = there + -(-releases // (place + 1)) * through
        held = max(begins, first - early)
        start[FORWARD, stage] = np.maximum(start[FORWARD, stage], held + there)


def most(seconds: FloatColumn, passes: int, count: int) -> float:
    """Longest time of `count` ops, of `passes` of each of some durations.

    Source: no ops take longer than the first `count` in the order of falling durations.
    """
    longest = np.sort(np.repeat(seconds, passes))[::-1]
    return float(longest[:count].sum())


def fewest(seconds: FloatColumn, passes: IntColumn, count: IntColumn) -> FloatColumn:
    """Shortest time of `count` ops, of `passes` of each of some durations. Source: as `most`."""
    total = np.zeros(len(count))
    for place, one in enumerate(np.sort(seconds).tolist()):
        total += np.clip(count - passes * place, 0, passes) * one
    return total

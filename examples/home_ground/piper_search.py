"""The best cut of Piper's layers: its dynamic programme, below a cutoff that grows.

A stage of p seconds has a load of p / d at least on d replicas, and the layers of all other stages
need devices too. So below a cutoff most stages have few numbers of replicas to try.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from piper import Found, Layer, Pair, Question, Stage, Sums, loads, mixes, most_replicas

GROWTH = 1.12
"""Of the cutoff. Source: measured; the answer is the same for any."""
ROUNDING = 1e-9
"""By how much a sum may be wrong, and more."""


def ends(layers: tuple[Layer, ...]) -> list[frozenset[int]]:
    """Sets of layers that may be the last stages: with each layer, all that need it; by size."""
    found, fresh = {frozenset[int]()}, [frozenset[int]()]
    while fresh:
        held = fresh.pop()
        for number, layer in enumerate(layers):
            more = held | {number}
            if number not in held and more not in found and held.issuperset(layer.outputs):
                found.add(more)
                fresh.append(more)
    return sorted(found, key=lambda held: (len(held), sorted(held)))


class Choice(NamedTuple):
    """A stage, by its layers, degree and replicas, and its least load by `y`."""

    stage: Stage
    after: int
    """The last stages that come after it."""
    load: NDArray[np.float64]


class Own(NamedTuple):
    """The layers of a stage."""

    after: int
    """The last stages that come after it."""
    layers: frozenset[int]
    in_order: tuple[int, ...]
    degrees: tuple[int, ...]
    """Of tensor parallelism that all of them have."""


class Work:
    """The problem, with what is asked again and again."""

    def __init__(self, layers: tuple[Layer, ...], question: Question) -> None:
        self.layers, self.question, self.held = layers, question, ends(layers)
        self.dp = np.array(
            [d for d in range(1, question.devices + 1) if question.num_microbatches % d == 0]
        )
        degrees = sorted({tp for layer in layers for tp in layer.ways})
        self.seconds = {tp: self._of_sets(tp) for tp in degrees}
        """Of every set of last layers, each layer in its shortest way."""
        self.least = self._of_sets(None)
        """As `seconds`, times devices, at the best degree."""
        self._of_stage: dict[tuple[int, frozenset[int]], Sums | None] = {}

    def _of_sets(self, tp: int | None) -> NDArray[np.float64]:
        def least(layer: Layer) -> float:
            if tp is not None:
                return min((way.seconds for way in layer.ways.get(tp, ())), default=0.0)
            return min(t * way.seconds for t, pair in layer.ways.items() for way in pair)

        each = [least(layer) for layer in self.layers]
        return np.array([sum(each[v] for v in held) for held in self.held])

    @cached_property
    def own(self) -> list[list[Own]]:
        """Stages by the set of layers from them on."""
        return [
            [
                self._own(after, held - self.held[after])
                for after in range(at)
                if self.held[after] < held
            ]
            for at, held in enumerate(self.held)
        ]

    def _own(self, after: int, own: frozenset[int]) -> Own:
        degrees = set.intersection(*({*self.layers[v].ways} for v in own))
        return Own(after, own, tuple(sorted(own)), tuple(sorted(degrees)))

    def loads_of(self, tp: int, own: frozenset[int]) -> Sums | None:
        """As `loads`, by every number of replicas; None if it never fits."""
        if (tp, own) not in self._of_stage:
            self._of_stage[tp, own] = self._loads(tp, [self.layers[v].at(tp, own) for v in own])
        return self._of_stage[tp, own]

    def _loads(self, tp: int, pairs: list[Pair]) -> Sums | None:
        sums = mixes(pairs, self.question.bandwidth)
        if (sums[:, 3:].sum(axis=1) > self.question.memory_bytes).all():
            return None
        return loads(sums, self.dp[self.dp * tp <= self.question.devices], self.question)

    def choices(self, at: int, cutoff: float, fewest: list[float]) -> Iterator[Choice]:
        """Stages that come right before others so that together they are `held[at]`.

        Those with a load above the cutoff are left out, and those beside which others have one.
        `fewest` are the devices that each smaller set needs.
        Source: derived; a stage of p seconds needs p over the cutoff replicas at least, the
        layers before it as many devices as their devices times seconds over the cutoff.
        """
        slack = 1 - ROUNDING
        before = (self.least[-1] - self.least[at]) / cutoff * slack
        for after, own, in_order, degrees in self.own[at]:
            room = self.question.devices - before - fewest[after]
            if room < 1:
                continue
            for tp in degrees:
                seconds = self.seconds[tp][at] - self.seconds[tp][after]
                first = int(np.searchsorted(self.dp, seconds / cutoff * slack))
                last = int(np.searchsorted(self.dp, room / tp, "right"))
                if first >= last or (by_replicas := self.loads_of(tp, own)) is None:
                    continue
                some = by_replicas[first:last]
                for i in np.flatnonzero(some.min(axis=1) <= cutoff).tolist():
                    stage = Stage(in_order, tp, int(self.dp[first + i]))
                    yield Choice(stage, after, some[i])

    def most(self) -> float:
        """No load is larger: every layer in its longest way, its edges cut, its weights sent.

        Source: as `loads`, where (d - 1) / (d N) is below 1.
        """
        return sum(
            max(
                way.seconds + (way.cut_bytes + 4 * way.weight_bytes) / self.question.bandwidth
                for tp in layer.ways
                for way in layer.at(tp, frozenset())
            )
            for layer in self.layers
        )


@dataclass(frozen=True, slots=True)
class Table:
    """Least largest load of the last stages, by devices they may use and replicas they have."""

    load: Sums
    choice: NDArray[np.int64]
    """What comes first, as a place in `choices`."""
    choices: list[Choice]

    def try_before(self, after: Table, choice: Choice) -> None:
        """A stage, before those of another table."""
        dp, devices = choice.stage.dp, choice.stage.tp * choice.stage.dp
        rows, columns = self.load.shape
        own = choice.load[-(-np.arange(dp, columns) // dp)]
        mine, picked = self.load[devices:, dp:], self.choice[devices:, dp:]
        load = np.maximum(after.load[: rows - devices, : columns - dp], own)
        better = load < mine
        if better.any():
            mine[better] = load[better]
            picked[better] = len(self.choices)
            self.choices.append(choice)


def solve(layers: tuple[Layer, ...], question: Question) -> Found:
    """The best cut: below a cutoff, which grows from the least there can be till there is one."""
    work = Work(layers, question)
    cutoff, most = float(work.least[-1]) / question.devices, work.most()
    while cutoff < most:
        cutoff = min(cutoff * GROWTH, most)
        found = solve_below(work, cutoff)
        if found.seconds <= cutoff:
            return found
    return Found(np.inf, ())


def solve_below(work: Work, cutoff: float) -> Found:
    """The best cut if its largest load is no more than the cutoff; else any, or none."""
    question = work.question
    shape = (question.devices + 1, most_replicas(question) + 1)
    tables = [Table(np.full(shape, np.inf), np.full(shape, -1), []) for _ in work.held]
    tables[0].load[:, 0] = 0.0
    fewest = [0.0]
    for at in range(1, len(work.held)):
        for choice in work.choices(at, cutoff, fewest):
            tables[at].try_before(tables[choice.after], choice)
        enough = (tables[at].load <= cutoff).any(axis=1)
        fewest.append(float(enough.argmax()) if enough.any() else np.inf)
    replicas = int(tables[-1].load[-1].argmin())
    return Found(float(tables[-1].load[-1, replicas]), tuple(_stages(tables, replicas)))


def _stages(tables: list[Table], replicas: int) -> Iterator[Stage]:
    """From the first stage to the last."""
    at, devices = len(tables) - 1, len(tables[0].load) - 1
    while at and tables[at].choice[devices, replicas] >= 0:
        choice = tables[at].choices[tables[at].choice[devices, replicas]]
        yield choice.stage
        at, devices = choice.after, devices - choice.stage.tp * choice.stage.dp
        replicas -= choice.stage.dp

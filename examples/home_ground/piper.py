"""Piper's BERT with 32 layers on 64 devices, solved exactly under its own definition.

Piper (msr-fiddle/piper, MIT, read at commit d7fc8cf; NeurIPS 2021, section 3) cuts a graph of
layers into stages, each on `d` replicas of `t` devices, and runs every layer in one of two ways,
with its activations kept or made again. With p seconds, w bytes of weights and c bytes over cut
edges of a layer, N micro batches and bandwidth B, the load of a stage for each sample is

    sum (p / d + (c / d + 4 (d - 1) w / (d N)) / B)

and the largest load of a stage is what is minimised. A device of a stage holds sum (a y + b), where
y = ceil((replicas of this and all later stages) / d). Piper chooses stages by dynamic programming
over (layers, devices, replicas), which is exact, and the ways of the layers by a rule of thumb,
which is not. We keep the first and choose the ways exactly: of layers that need the same memory in
both ways, those come first whose activations are made again in the least time, so how many of them
is all there is to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from checkout import json_of
from numpy.typing import NDArray

from trainplan.costmodel.layouts import FloatColumn, IntColumn
from trainplan.profiler.importers.reading import Entry

T = TypeVar("T")
FILE = "inputs/bert32a100.json"
BANDWIDTH = 25.0 * 2**30
"""Bytes per second. Source: algo.cpp, `single`; the file has 25e9."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of Piper."""

    devices: int = 64
    num_microbatches: int = 480
    memory_bytes: float = 8.0 * 2**30
    bandwidth: float = BANDWIDTH


class Way(NamedTuple):
    """How a layer is run."""

    seconds: float
    cut_bytes: float
    """Over the edges that leave the stage, both ways."""
    weight_bytes: float
    per_sample: float
    """Bytes for each micro batch in flight."""
    fixed: float
    """Bytes besides."""


Pair = tuple[Way, Way]
"""Activations kept, and made again."""
Memory = tuple[tuple[float, ...], ...]
Sums = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the graph, at each degree of tensor parallelism."""

    ways: Mapping[int, Pair]
    """Without cuts."""
    inputs: Mapping[int, float]
    outputs: Mapping[int, float]
    """Layers at the other end of its edges, and their bytes."""
    extra: Mapping[int, tuple[Mapping[int, float], Mapping[int, float]]]
    """Bytes that a way adds to the edge to a layer, by degree."""

    def at(self, tp: int, inside: frozenset[int]) -> Pair:
        """Its ways in a stage that holds some layers."""
        ends = {**self.inputs, **self.outputs}
        cut = [other for other in ends if other not in inside]
        first, second = (2 * sum(ends[v] + extra[v] for v in cut) for extra in self.extra[tp])
        kept, again = self.ways[tp]
        return kept._replace(cut_bytes=first), again._replace(cut_bytes=second)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the answer."""

    layers: tuple[int, ...]
    tp: int
    dp: int


@dataclass(frozen=True, slots=True)
class Found:
    """The best cut."""

    seconds: float
    """The largest load of a stage, for each sample; infinite if nothing fits."""
    stages: tuple[Stage, ...]


def read(checkout: Path) -> tuple[Layer, ...]:
    """Its layers, numbered as in its file."""
    top = json_of(checkout, FILE)
    edges = [
        (int(e["sourceId"].number()), int(e["destId"].number()), e["communicationCost"].number())
        for e in top["edges"].elements()
    ]
    return tuple(
        Layer(
            ways={int(tp): _two(e, _way) for tp, e in node["TMPCs"].items()},
            inputs={a: size for a, b, size in edges if b == number},
            outputs={b: size for a, b, size in edges if a == number},
            extra={int(tp): _two(e, _sync) for tp, e in node["TMPCs"].items()},
        )
        for number, node in enumerate(top["nodes"].elements())
    )


def _two(entry: Entry, read_one: Callable[[Entry], T]) -> tuple[T, T]:
    """Of the two ways of a layer.

    Raises:
        SpecError: There are more or fewer.
    """
    ways = entry.elements()
    if len(ways) != 2:
        raise entry.wrong("two ways to run a layer")
    return read_one(ways[0]), read_one(ways[1])


def _way(entry: Entry) -> Way:
    return Way(
        entry["timePerSample"].number(),
        0.0,
        entry["parameterSize"].number(),
        entry["memoryUsageA"].number(),
        entry["memoryUsageB"].number(),
    )


def _sync(entry: Entry) -> dict[int, float]:
    both = (*entry["syncTimeFw"].items(), *entry["syncTimeBw"].items())
    return {int(other): size.number() for other, size in both}


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


def mixes(pairs: Iterable[Pair], bandwidth: float) -> Sums:
    """Sums over the layers of a stage, for every number of each kind that is run the second way.

    Returns:
        Seconds, cut bytes, weight bytes, bytes for each micro batch in flight, bytes besides.
    """
    kinds: dict[Memory, list[Pair]] = {}
    for pair in pairs:
        kinds.setdefault(tuple(way[2:] for way in pair), []).append(pair)
    total = np.zeros((1, len(Way._fields)))
    for alike in kinds.values():
        first, second = np.array(alike).transpose(1, 0, 2)
        more = second - first
        order = np.argsort(more[:, 0] + more[:, 1] / bandwidth)
        steps = np.vstack([np.zeros(more.shape[1]), more[order].cumsum(axis=0)])
        sums = first.sum(axis=0) + (steps if more.any() else steps[:1])
        total = (total[:, None] + sums[None]).reshape(-1, total.shape[1])
    return total


def loads(sums: Sums, replicas: IntColumn, question: Question) -> Sums:
    """Least load of a stage by its replicas and `y`, from y = 0; infinite where it does not fit."""
    seconds, cut, weights, each, fixed = sums.T
    dp = replicas[:, None]
    traffic = cut / dp + 4 * (dp - 1) * weights / (dp * question.num_microbatches)
    load = seconds / dp + traffic / question.bandwidth
    depth = np.arange(most_replicas(question) + 1)
    fits = each[:, None] * depth + fixed[:, None] <= question.memory_bytes
    return np.asarray(np.where(fits, load[:, :, None], np.inf).min(axis=1))


def most_replicas(question: Question) -> int:
    """Of all stages together. Source: algo.cpp, `boundOnS`."""
    return min(question.num_microbatches, question.devices)


class Choice(NamedTuple):
    """A stage, by its layers, degree and replicas, and its least load by `y`."""

    stage: Stage
    after: int
    """The last stages that come after it."""
    load: FloatColumn


def choices(
    layers: tuple[Layer, ...], held: list[frozenset[int]], at: int, question: Question
) -> Iterator[Choice]:
    """Stages that come right before others so that together they are `held[at]`."""
    divisors = [d for d in range(1, question.devices + 1) if question.num_microbatches % d == 0]
    for after in range(at):
        if not held[after] < held[at]:
            continue
        own = held[at] - held[after]
        for tp in sorted(set.intersection(*({*layers[v].ways} for v in own))):
            sums = mixes([layers[v].at(tp, own) for v in own], question.bandwidth)
            if (sums[:, 3:].sum(axis=1) > question.memory_bytes).all():
                continue
            replicas = np.array([d for d in divisors if d * tp <= question.devices])
            by_replicas = loads(sums, replicas, question)
            for dp, load in zip(replicas.tolist(), by_replicas, strict=True):
                yield Choice(Stage(tuple(sorted(own)), tp, dp), after, load)


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
    """The best cut."""
    held = ends(layers)
    shape = (question.devices + 1, most_replicas(question) + 1)
    tables = [Table(np.full(shape, np.inf), np.full(shape, -1), []) for _ in held]
    tables[0].load[:, 0] = 0.0
    for at in range(1, len(held)):
        for choice in choices(layers, held, at, question):
            tables[at].try_before(tables[choice.after], choice)
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

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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from checkout import json_of
from numpy.typing import NDArray

from trainplan.costmodel.base.entries import Entry

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
        if inside.issuperset(self.inputs) and inside.issuperset(self.outputs):
            return self.ways[tp]
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


def loads(sums: Sums, replicas: NDArray[np.int64], question: Question) -> Sums:
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

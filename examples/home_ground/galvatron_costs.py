"""What Galvatron charges for a layer run in some way: seconds, and MiB on one GPU.

Everything here is its definition, not ours, read from a checkout of PKU-DAIR/Hetu-Galvatron
(Apache-2.0) at commit cea12ff. Source of the formulas: galvatron/core/cost_model/components
(layers, embedding and head); of the units: galvatron/utils/config_utils.py. bf16, 1F1B, sequence
parallel, ZeRO-2 where not ZeRO-3, as in models/gpt/scripts/search_dist.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

MEBIBYTE = 1024 * 1024
BYTES = 2
"""Of a bf16 number."""
WORLD_SIZE = 8
CONTEXT_MIB = 1024
"""What the runtime keeps on every GPU. Source: cost_model_args.py."""


class Line(NamedTuple):
    """A straight line fitted to measurements."""

    slope: float
    intercept: float

    def at(self, x: float) -> float:
        """Its value."""
        return self.slope * x + self.intercept


@dataclass(frozen=True, slots=True)
class Transfer:
    """Milliseconds of a collective by MiB: measured where they are, else from a line."""

    measured: Mapping[float, float]
    line: Line

    def milliseconds(self, mib: float) -> float:
        """Of one message."""
        return self.measured.get(mib, self.line.at(mib))


@dataclass(frozen=True, slots=True)
class Ends:
    """Embedding and head on one GPU, by the GPUs that share them."""

    states_mib: Mapping[int, float]
    activation_mib: Mapping[int, float]
    """Of one sample."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of the model and the machine."""

    num_layers: int
    hidden_size: int
    seq_length: int
    layer: Line
    """Forward of a layer, milliseconds by samples."""
    ends: Line
    """Forward of embedding and head."""
    parameter_mib: float
    """Of a layer, fp32."""
    activation_mib: Mapping[int, float]
    """Of a layer and one sample, by the GPUs that share it."""
    checkpoint_mib: float
    """What stays of it when the layer is recomputed."""
    whole: Ends
    first: Ends
    last: Ends
    """The ends without pipeline, and on its first and last stage."""
    reduce_ms_per_mib: Mapping[tuple[int, bool], float]
    """Of an all-reduce, by ranks and whether they are in a row."""
    p2p_ms_per_mib: Mapping[int, float]
    """Of a message, by stages."""
    gather: Mapping[int, Transfer]
    exchange: Mapping[int, Transfer]
    """All-gather and all-to-all, by ranks."""
    slowdown: float
    """Of work beside communication, and the reverse."""

    def message_mib(self, samples: int) -> float:
        """Hidden states of samples."""
        return samples * self.seq_length * self.hidden_size * BYTES / MEBIBYTE


class Way(NamedTuple):
    """How a layer is run, or the embedding and the head."""

    pp: int
    tp: int
    sp: int
    """Ranks of Ulysses; with `tp` one of the two is 1."""
    dp: int
    zero3: bool
    recompute: bool = False

    @property
    def split(self) -> int:
        """Ranks that share a sample."""
        return max(self.tp, self.sp)

    @property
    def shards(self) -> int:
        """Ranks that share optimizer states."""
        return self.dp * self.sp


class Run(NamedTuple):
    """Samples of a step, and how many micro batches they are cut into."""

    batch: int
    chunks: int

    def samples(self, way: Way) -> int:
        """Of a micro batch on one rank. Source: layer_cost.py, `lbsz`."""
        return self.batch // self.chunks // way.dp


class LayerSeconds(NamedTuple):
    """One micro batch, forward and backward; `synced`: with the sum of the gradients."""

    alone: float
    synced: float


def layer_seconds(of: Measured, run: Run, way: Way) -> LayerSeconds:
    """Source: layer_cost.py, TimeCostModelBase."""
    samples = run.samples(way)
    forward = of.layer.at(samples / way.split)
    backward = forward * (3 if way.recompute else 2)
    reduce_ms = (way.shards - 1) / way.shards * of.parameter_mib / way.tp * _reduce(of, way)
    fixed = forward + _split_ms(of, samples, way) + _p2p_ms(of, samples, way)
    fixed += reduce_ms / 2 if way.zero3 else 0.0
    synced = _alongside(reduce_ms, backward, of.slowdown) if way.dp > 1 else backward
    return LayerSeconds((fixed + backward) / 1e3, (fixed + synced) / 1e3)


def _reduce(of: Measured, way: Way) -> float:
    """Milliseconds per MiB of the ranks that share optimizer states."""
    return of.reduce_ms_per_mib[way.shards, way.tp == 1]


def _alongside(communication: float, work: float, slowdown: float) -> float:
    """Milliseconds of both together: what overlaps is slower, the rest is not."""
    shorter, longer = sorted((communication, work))
    return slowdown * shorter + longer - shorter


def _split_ms(of: Measured, samples: int, way: Way) -> float:
    """Collectives of the ranks that share a sample.

    6 all-gathers or 4 all-to-alls, and half as many again where the forward is run twice.
    """
    if way.split == 1:
        return 0.0
    times = 1.5 if way.recompute else 1.0
    mib = of.message_mib(samples)
    if way.tp > 1:
        return 6 * times * of.gather[way.tp].milliseconds(mib)
    return 4 * times * of.exchange[way.sp].milliseconds(mib)


def _p2p_ms(of: Measured, samples: int, way: Way) -> float:
    """Messages between stages, spread over the layers."""
    if way.pp == 1:
        return 0.0
    mib = 2 * way.pp * of.message_mib(samples)
    return mib * of.p2p_ms_per_mib[way.pp] / of.num_layers


def states_fraction(run: Run, way: Way) -> float:
    """Part of a layer's states that one rank holds. Source: layer_cost.py, `zero2_ratio`."""
    if way.dp == 1:
        return 1.0
    whole = (0 if way.zero3 else 1) + (0 if run.chunks == 1 else 1)
    return (8 - whole) / 8 * (1 / way.shards + 0.003) + whole / 8


def layer_mib(of: Measured, run: Run, way: Way, stage: int) -> int:
    """Source: layer_cost.py, MemoryCostModelBase; whole MiB as in dynamic_programming.py."""
    states = 4 * of.parameter_mib / way.tp * states_fraction(run, way)
    activation = of.checkpoint_mib / way.split if way.recompute else of.activation_mib[way.split]
    in_flight = way.pp - stage  # 1 without pipeline
    return ceil(states + activation * in_flight * run.samples(way))


def ends_of(of: Measured, pp: int, stage: int) -> Ends | None:
    """What a stage holds of embedding and head; None in the middle."""
    if pp == 1:
        return of.whole
    return {0: of.first, pp - 1: of.last}.get(stage)


def ends_seconds(of: Measured, run: Run, way: Way, stage: int) -> float:
    """Embedding and head of one micro batch. Source: embedding_lmhead_cost.py, no gradient sync."""
    held = ends_of(of, way.pp, stage)
    if held is None:
        return 0.0
    samples = run.samples(way)
    forward = of.ends.at(samples / way.split) / min(2, way.pp)
    gather_ms = 0.0
    if way.zero3:
        share = (way.shards - 1) / way.shards * _reduce(of, way)
        gather_ms = held.states_mib[way.tp] / 8 * share / 2
    both = _covered(gather_ms, forward, of.slowdown) + _covered(gather_ms, 2 * forward, of.slowdown)
    if way.tp > 1:
        ends_here = 2 if way.pp == 1 else 1
        both += ends_here * of.gather[way.tp].milliseconds(of.message_mib(samples))
    return both / 1e3


def _covered(communication: float, work: float, slowdown: float) -> float:
    """Milliseconds of communication beside work that alone slows down."""
    return max(communication, work + communication * (1 - 1 / slowdown))


def ends_mib(of: Measured, run: Run, way: Way, stage: int) -> int:
    """Source: embedding_lmhead_cost.py; the context is on every stage."""
    held = ends_of(of, way.pp, stage)
    if held is None:
        return CONTEXT_MIB
    states = held.states_mib[way.tp] * states_fraction(run, way)
    in_flight = way.pp - stage
    activation = held.activation_mib[way.split] * in_flight * run.samples(way)
    return ceil(states + activation + CONTEXT_MIB)

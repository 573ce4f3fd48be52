"""How layers fill virtual stages, and stages fill pipeline ranks.

Ranks that hold the same blocks form a class. Within a class the last rank starts last (it decides
time) and the rank that holds most micro batches decides memory, so a few classes stand for all
ranks exactly. Where no rank of a class holds most of every chunk, each that may is a class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import Identical, SpecError
from trainplan.costmodel.columns import (
    FloatColumn,
    IntColumn,
    IntRowStages,
    IntStageKinds,
    nondominated,
)
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import StageSpec
from trainplan.costmodel.layouts import FULL, UNIFORM, LayoutTable, layers_per_stage
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES, held_passes

IntLayerKinds = IntColumn  # (layer, kind)

ENDS = 3
"""Kinds of block that are no layers: embedding, head, MTP module."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """The layers of a model in order, as far as stages care; hashes faster than the model."""

    kinds: tuple[int, ...]
    """Kind of every layer."""
    mtp: int
    """Multi-token-prediction modules."""
    forward_alone: tuple[int, ...] = ()
    """Kinds that run forward alone, of the first layers: full recomputation keeps none of their
    inputs."""
    stages: tuple[StageSpec, ...] | None = None
    """Virtual stages where they are given."""
    tower: bool = False
    """Does the first stage hold a tower?"""


@dataclass(frozen=True, slots=True)
class StageLayers:
    """Blocks of each virtual stage by kind; columns over stages."""

    of_kind: IntStageKinds
    """Layers of each kind; (stage, kind)."""
    embedding: IntColumn
    head: IntColumn
    mtp: IntColumn

    @property
    def layers(self) -> IntColumn:
        """Layers of any kind."""
        return np.asarray(self.of_kind.sum(axis=1))

    @property
    def by_kind(self) -> tuple[IntColumn, ...]:
        """Each kind of layer, embedding, head, MTP."""
        return *self.of_kind.T, self.embedding, self.head, self.mtp


@dataclass(frozen=True, slots=True)
class RankClasses:
    """Coefficients of one pipeline shape, one number for each class.

    Those marked (class, N) have a row of numbers for N = 0, 1, ... layers that each virtual stage
    recomputes in full; the last N covers every layer.
    """

    layers: tuple[FloatColumn, ...]
    """Layers of one rank, of each kind."""
    embedding: FloatColumn
    head: FloatColumn
    mtp: FloatColumn
    rank: FloatColumn
    """Last rank of the class: how many ranks come before it."""
    before: tuple[FloatColumn, ...]
    """Layers a micro batch crosses before it reaches that rank, of each kind."""
    mtp_held: FloatColumn
    """MTP modules whose activations the fullest rank of the class holds at its fullest moment."""
    embedding_held: FloatColumn
    """Micro batches in flight on the first stage at most, where the class holds it and a tower."""
    received_held: FloatColumn
    """Passes in flight at its fullest moment on stages that receive what they work on."""
    largest_stage: FloatColumn
    """Layers of its largest virtual stage."""
    recomputed: tuple[FloatColumn, ...]
    """(class, N) Layers of one rank whose forward pass is repeated, of each kind."""
    recomputed_before: tuple[FloatColumn, ...]
    whole_held: tuple[FloatColumn, ...]
    """(class, N) Layers held whole by the fullest rank of the class, of each kind: those not
    recomputed."""
    block_inputs_held: FloatColumn
    """(class, N) Layer inputs held when the first N layers of each stage are recomputed."""
    uniform_inputs_held: FloatColumn
    """(class, N) Layer inputs held when all layers are recomputed in groups of N; 0 for N = 0."""


def decoder_of(job: Job, stages: tuple[StageSpec, ...] | None = None) -> Decoder:
    """The layers of a model in order, and the stages a layout gives."""
    return _decoder_of(Identical(job.model), stages)


@lru_cache(maxsize=1024)
def _decoder_of(of: Identical[ModelSpec], stages: tuple[StageSpec, ...] | None) -> Decoder:
    model = of.of
    alone = tuple(
        number
        for number, kind in enumerate(model.kinds)
        if kind.trained is not None and not kind.trained.passes_gradient
    )
    tower = model.tower is not None
    return Decoder(model.kind_of_layer, model.num_nextn_predict_layers, alone, stages, tower)


@lru_cache(maxsize=1024)
def layers_before(kinds: tuple[int, ...]) -> IntLayerKinds:
    """Layers of each kind before layer 0, 1, ..., and in all; (layer, kind)."""
    each = np.eye(max(kinds) + 1, dtype=np.int64)[list(kinds)]
    return np.concatenate([np.zeros((1, each.shape[1]), dtype=np.int64), each.cumsum(axis=0)])


@lru_cache(maxsize=1024)
def stage_layers(decoder: Decoder, num_stages: int) -> StageLayers:
    """Blocks of every virtual stage: embedding first; multi-token prediction and head last.

    Raises:
        SpecError: The stages given are for another number of stages or of layers.
    """
    counts = np.array(_layer_counts(decoder, num_stages))
    ends, before = np.cumsum(counts), layers_before(decoder.kinds)
    first = np.zeros(num_stages, dtype=np.int64)
    last = first.copy()
    first[0] = last[-1] = 1
    held = before[ends] - before[ends - counts]
    return StageLayers(held, embedding=first, head=last, mtp=last * decoder.mtp)


def _layer_counts(decoder: Decoder, num_stages: int) -> tuple[int, ...]:
    layers = len(decoder.kinds)
    if decoder.stages is None:
        return layers_per_stage(layers, num_stages)
    counts = tuple(stage.layers for stage in decoder.stages)
    if len(counts) != num_stages:
        raise SpecError(f"{len(counts)} stages are given, pp * vpp is {num_stages}: give as many")
    if sum(counts) != layers:
        raise SpecError(
            f"the stages hold {sum(counts)} layers, the model has {layers}: give every layer once"
        )
    return counts


@lru_cache(maxsize=8192)
def rank_classes(
    decoder: Decoder, schedule: str, shape: tuple[int, int], microbatches: int, *, merged: bool
) -> RankClasses:
    """Coefficients of one pipeline shape (pp, vpp); `merged=False` makes every rank a class."""
    stage = placed(SCHEDULES[schedule].placement, *shape)
    stages = stage_layers(decoder, stage.size)
    kinds = [column[stage] for column in stages.by_kind]
    layers = stages.layers[stage]
    passes = held_passes(schedule, microbatches, layers)
    distinguished = np.concatenate(kinds, axis=1) if merged else np.arange(len(stage))[:, None]
    fullest, last = _classes(distinguished, _by_chunk(kinds, passes))
    sums = [kind[last].sum(axis=1, dtype=np.float64) for kind in kinds]
    embedding, head, mtp = sums[-ENDS:]
    held = passes[fullest]
    first = _most_held_first(schedule, shape, microbatches) if decoder.tower else held[:, 0]
    limit = np.arange(int(layers.max()) + 1)
    again = _recomputed(decoder, stages, _limits(decoder, limit))
    repeated = [kind[stage] for kind in again]
    groups = _groups(stages.layers, limit) - _groups_of_none(decoder, stages, limit)
    kept = [some for number, some in enumerate(repeated) if number not in decoder.forward_alone]
    return RankClasses(
        layers=tuple(sums[:-ENDS]),
        embedding=embedding,
        head=head,
        mtp=mtp,
        rank=last.astype(np.float64),
        before=tuple(_before(kind, last) for kind in stages.of_kind.T),
        mtp_held=held[:, -1] * mtp,
        embedding_held=embedding * first,
        received_held=(held * (stage > 0)[fullest]).sum(axis=1),
        largest_stage=layers[last].max(axis=1).astype(np.float64),
        recomputed=tuple(kind[last].sum(axis=1, dtype=np.float64) for kind in repeated),
        recomputed_before=tuple(_before(kind, last) for kind in again),
        whole_held=tuple(
            _held(held, (kind[..., None] - some)[fullest])
            for kind, some in zip(kinds, repeated, strict=False)
        ),
        block_inputs_held=_held(held, sum(kept, start=np.zeros_like(repeated[0]))[fullest]),
        uniform_inputs_held=_held(held, groups[stage][fullest]),
    )


def _groups(layers: IntColumn, limit: IntColumn) -> IntColumn:
    """Groups of so many layers in each stage, (stage, N); the last one has what is left."""
    return np.asarray(-(-layers[:, None] // np.maximum(limit, 1)) * (limit > 0))


def _groups_of_none(decoder: Decoder, stages: StageLayers, limit: IntColumn) -> IntColumn:
    """Of these, those whose layers all run forward alone: the first ones of a stage."""
    alone = stages.of_kind[:, list(decoder.forward_alone)].sum(axis=1)
    whole = alone == stages.layers
    some = alone[:, None] // np.maximum(limit, 1) * (limit > 0)
    return np.where(whole[:, None], _groups(stages.layers, limit), some)


@lru_cache(maxsize=8192)
def _most_held_first(schedule: str, shape: tuple[int, int], microbatches: int) -> float:
    """Passes in flight on the first stage at its own fullest moment."""
    first = placed(SCHEDULES[schedule].placement, *shape) == 0
    held = held_passes(schedule, microbatches, first.astype(np.int64))
    return float(held[first][0])


def recomputed_layers(
    decoder: Decoder, stages: StageLayers, table: LayoutTable
) -> tuple[IntRowStages, ...]:
    """Layers of each kind in every virtual stage that full recomputation repeats."""
    full = table.recompute == FULL
    uniform = full & (table.recompute_method == UNIFORM)
    everything = int(stages.layers.max())
    limit = np.where(uniform, everything, np.where(full, table.recompute_num_layers, 0))
    return tuple(kind.T for kind in _recomputed(decoder, stages, _limits(decoder, limit)))


def _limits(decoder: Decoder, limit: IntColumn) -> IntColumn:
    """Layers that may be recomputed, by stage where the stages say so; shape (stage or 1, N)."""
    own = [stage.recompute_num_layers for stage in decoder.stages or ()]
    if not any(number is not None for number in own):
        return limit[None, :]
    return np.stack([limit if number is None else np.full_like(limit, number) for number in own])


def _classes(distinguished: IntColumn, passes: FloatColumn) -> tuple[IntColumn, IntColumn]:
    """Fullest and last member of every class of equal rows, by its passes in flight.

    A class is there once for each member that may be the fullest; all of them with its last one.
    """
    members: dict[tuple[int, ...], list[int]] = {}
    for place, row in enumerate(map(tuple, distinguished.tolist())):
        members.setdefault(row, []).append(place)
    some = [np.array(members[row]) for row in sorted(members)]
    fullest = [one[nondominated(passes[one])] if len(one) > 1 else one for one in some]
    last = [np.full(len(most), one[-1]) for most, one in zip(fullest, some, strict=True)]
    return np.concatenate(fullest), np.concatenate(last)


def _by_chunk(kinds: Sequence[IntColumn], passes: FloatColumn) -> FloatColumn:
    """Passes in flight as far as they tell ranks apart: their sum where all chunks are alike.

    Source: where all chunks of a rank hold the same layers, a pass in flight holds as much on any
    of them, so only the number of passes counts.
    """
    layers, mtp = np.stack(kinds[:-ENDS]), kinds[-1]
    even = (np.ptp(layers, axis=2) == 0).all(axis=0) & (mtp[:, -1] == 0)
    alike = even & ((layers[:, :, 0] > 0).sum(axis=0) <= 1)
    total = np.zeros_like(passes)
    total[:, 0] = passes.sum(axis=1)
    return np.where(alike[:, None], total, passes)


def _before(column: IntColumn, ranks: IntColumn) -> FloatColumn:
    """Sum over the stages 0..rank-1 of the first chunk.

    Source: running sums behind a leading zero: entry r is the sum over the r stages in front of
    rank r.
    """
    total = np.concatenate([np.zeros((1, *column.shape[1:])), np.cumsum(column, axis=0)])
    return np.asarray(total[ranks], dtype=np.float64)


def _held(passes: FloatColumn, layers: IntColumn) -> FloatColumn:
    """Layers in flight: passes (class, chunk) times layers (class, chunk, N).

    Source: a pass in flight keeps all layers of its chunk, so layers in flight are passes times
    layers, summed over the chunks of the rank.
    """
    return np.asarray(np.einsum("kc,kcn->kn", passes, layers))


def _recomputed(decoder: Decoder, stages: StageLayers, limit: IntColumn) -> tuple[IntColumn, ...]:
    """Layers of each kind among the first of each stage; `limit` and results are (stage, N)."""
    before, counts = layers_before(decoder.kinds), stages.layers
    start = np.cumsum(counts) - counts
    covered = np.minimum(limit, counts[:, None])
    some = before[start[:, None] + covered] - before[start][:, None]
    return tuple(np.moveaxis(some, -1, 0))

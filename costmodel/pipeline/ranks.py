"""Coefficients of the pipeline ranks of many layouts: matrices of shape (class, row)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import ClassRows, FloatColumn, IntColumn, distinct
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import FULL, UNIFORM, LayoutTable, num_microbatches, stage_codes
from trainplan.costmodel.pipeline.stages import RankClasses, decoder_of, rank_classes
from trainplan.costmodel.schedules import SCHEDULES, grouped


@dataclass(frozen=True, slots=True)
class Ranks:
    """Coefficients of each layout under its own recomputation.

    A layout with fewer classes than others repeats its last one, so maxima are unchanged.
    """

    layers: tuple[ClassRows, ...]
    """Layers of one rank, of each kind."""
    embedding: ClassRows
    head: ClassRows
    mtp: ClassRows
    rank: ClassRows
    """Last rank of the class: how many ranks come before it."""
    before: tuple[ClassRows, ...]
    """Layers a micro batch crosses before it reaches that rank, of each kind."""
    recomputed: tuple[ClassRows, ...]
    """Layers of the rank whose whole forward pass is repeated, of each kind."""
    recomputed_before: tuple[ClassRows, ...]
    whole_held: tuple[ClassRows, ...]
    """Layers held whole, of each kind: not recomputed in full."""
    mtp_held: ClassRows
    embedding_held: ClassRows
    """Micro batches in flight on the stage of the embedding."""
    received_held: ClassRows
    """Passes in flight on stages that receive what they work on."""
    inputs_held: ClassRows
    """Layer inputs kept by full recomputation."""
    layers_at_once: ClassRows
    """Layers that full recomputation brings back at once."""

    @property
    def by_kind(self) -> tuple[ClassRows, ...]:
        """Blocks of one rank: each kind of layer, embedding, head, MTP."""
        return *self.layers, self.embedding, self.head, self.mtp


def ranks_of(job: Job, table: LayoutTable, *, merged: bool = True) -> Ranks:
    """Coefficients of every row; `merged=False` keeps every rank apart, in order.

    Micro batches beyond a full pipeline change no coefficient, so their number is capped there and
    few distinct pipeline shapes remain; but not where it decides the size of unusual groups.
    """
    named = [SCHEDULES[name] for name in SCHEDULE_NAMES]
    full_pipeline = np.array([one.rounds_to_fill for one in named])
    groups = np.array(["microbatch_group_size" in one.options for one in named])
    microbatches = num_microbatches(job, table)
    size = job.options.microbatch_group_size
    larger = (microbatches % table.pp != 0) | (size not in (None, "least"))
    unusual = groups[table.schedule] & (table.vpp > 1) & larger
    full = np.minimum(microbatches, full_pipeline[table.schedule] * table.pp)
    capped = np.where(unusual, microbatches, full)
    codes, splits = stage_codes(table)
    columns = (table.schedule, table.pp, table.vpp, capped, codes)
    first, shape = distinct(*columns)
    decoders = [decoder_of(job, split) for split in splits]
    shapes = [
        rank_classes(
            decoders[i],
            grouped(SCHEDULE_NAMES[schedule], size, pp, m),
            (pp, vpp),
            max(1, m),
            merged=merged,
        )
        for schedule, pp, vpp, m, i in zip(*(c[first].tolist() for c in columns), strict=True)
    ]
    return _rows(shapes, shape, table)


def _rows(shapes: Sequence[RankClasses], shape: IntColumn, table: LayoutTable) -> Ranks:
    """Pick each row's coefficients; `shape` is the number of its pipeline shape."""
    sizes = np.array([len(one.rank) for one in shapes])
    widths = np.array([one.block_inputs_held.shape[1] for one in shapes])
    member = np.minimum(np.arange(sizes.max())[:, None], sizes[shape] - 1)
    plain = (np.cumsum(sizes) - sizes)[shape] + member
    full = table.recompute == FULL
    uniform = full & (table.recompute_method == UNIFORM)
    largest = widths[shape] - 1
    number = np.minimum(table.recompute_num_layers, largest)
    starts = (np.cumsum(sizes * widths) - sizes * widths)[shape] + member * widths[shape]
    covered = starts + np.where(uniform, largest, full * number)

    def pick(columns: Sequence[FloatColumn], index: IntColumn) -> FloatColumn:
        """Coefficients of all shapes end to end, read at `index`."""
        column = np.concatenate([one.ravel() for one in columns])
        return column.take(index) if column.any() else np.zeros(index.shape)

    def each(name: str, index: IntColumn) -> tuple[ClassRows, ...]:
        """Coefficients of each kind of layer."""
        columns = zip(*(getattr(one, name) for one in shapes), strict=True)
        return tuple(pick(column, index) for column in columns)

    blocked = pick([one.block_inputs_held for one in shapes], covered)
    grouped = pick([one.uniform_inputs_held for one in shapes], starts + uniform * number)
    ahead = np.minimum(number, pick([one.largest_stage for one in shapes], plain))
    return Ranks(
        layers=each("layers", plain),
        embedding=pick([one.embedding for one in shapes], plain),
        head=pick([one.head for one in shapes], plain),
        mtp=pick([one.mtp for one in shapes], plain),
        rank=pick([one.rank for one in shapes], plain),
        before=each("before", plain),
        recomputed=each("recomputed", covered),
        recomputed_before=each("recomputed_before", covered),
        whole_held=each("whole_held", covered),
        mtp_held=pick([one.mtp_held for one in shapes], plain),
        embedding_held=pick([one.embedding_held for one in shapes], plain),
        received_held=pick([one.received_held for one in shapes], plain),
        inputs_held=np.where(uniform, grouped, blocked),
        layers_at_once=np.where(uniform, ahead, full),
    )

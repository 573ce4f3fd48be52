"""Seconds of the pipelined part of a step: a proven lower bound for every row, in closed form.

Each schedule brings its own bound (`costmodel.schedules`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from operator import attrgetter

import numpy as np

from trainplan.costmodel.architecture import trains_embedding
from trainplan.costmodel.blocks import Block
from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, Rows
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.pipeline.ranks import Ranks
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.schedules import SCHEDULES, RankSeconds, Work
from trainplan.costmodel.shards import table_weights


@dataclass(frozen=True, slots=True)
class LayerSeconds:
    """Seconds of one layer of a kind for each row, with all that depends on the whole row."""

    forward: Rows
    backward: Rows
    """With the work selective recomputation repeats."""
    weight: Rows
    """Part of `backward` that only the weight gradients need."""
    recompute_forward: Rows
    """Forward work that full recomputation repeats in the backward pass; sharded weights are
    gathered once for both."""
    recompute: Rows
    """Part of `backward`: what selective recomputation repeats."""
    traffic: Rows
    """Part of both passes: exposed gathers and reductions of sharded weights and gradients."""
    waiting: Rows
    """Part of both passes: until activations have gone to the host, or come back."""

    def take(self, rows: IntColumn) -> LayerSeconds:
        """Some of the rows."""
        return LayerSeconds(*(column[rows] for column in COLUMNS(self)))

    def overlapped_with_copy(self, copy: FloatColumn, taken: FloatColumn) -> LayerSeconds:
        """The layer when each pass runs beside a copy of so many seconds, and waits for it.

        Activations of one layer leave while the next runs forward, and are fetched while the one
        behind runs backward, each way on a stream of its own. `taken` are the seconds in which the
        copy has the device's memory for itself.
        Source: Megatron Core `fine_grained_activation_offload.py` (reloads one layer ahead, with
        one copy of a module in flight); ZeRO-Offload, arXiv:2101.06840, section 4.1.
        """
        forward = np.maximum(self.forward + taken, copy)
        backward = np.maximum(self.backward + taken, copy)
        waiting = forward - self.forward + backward - self.backward
        return replace(self, forward=forward, backward=backward, waiting=waiting)


COLUMNS: Callable[[LayerSeconds], tuple[Rows, ...]] = attrgetter(
    *(field.name for field in fields(LayerSeconds))
)
"""All columns of a layer in their order."""


@dataclass(frozen=True, slots=True)
class RowSeconds:
    """Seconds of every kind of block for each row."""

    layers: tuple[LayerSeconds, ...]
    """Of each kind, in the order of `ModelSpec.kinds`."""
    embedding: LayerSeconds
    head: LayerSeconds
    mtp: LayerSeconds
    p2p: Rows
    """From the end of a pass to the start of the next stage's: one message, gathered."""
    sending: Rows
    """Part of `p2p` in which the sender waits for its message; 0 where it goes on."""
    splits_backward: BoolColumn
    """The schedule runs weight gradients as passes of their own."""
    unsynchronised: BoolColumn
    """A step is counted from each rank's own first pass, see `unsynchronised`."""

    @property
    def by_kind(self) -> tuple[LayerSeconds, ...]:
        """Each kind of layer, embedding, head, MTP."""
        return *self.layers, self.embedding, self.head, self.mtp


@remembered
def table_sum_seconds(candidates: Candidates) -> FloatColumn:
    """Seconds in which ranks with a copy of the token table add up its gradients, of each row.

    The first and the last rank do, where the head is the table or a module predicts further tokens:
    an all-reduce of the whole accumulated gradient, after all others and before the optimizer.
    Source: Megatron-LM @d98e8a64 `distributed/finalize_model_grads.py`,
    _allreduce_word_embedding_grads; DeepSpeed `runtime/pipe/engine.py`, _exec_reduce_tied_grads.
    """
    job, machine, table = candidates.job, candidates.machine, candidates.table
    model = job.model
    copied = model.tie_word_embeddings or model.num_nextn_predict_layers > 0
    copied = copied and trains_embedding(model)
    stage = table.tp * table.cp * table.dp
    whole, domain = table.pp * stage, machine.domain_gpus
    stride = np.where(whole <= domain, stage, np.maximum(domain, whole // 2))
    links = group(machine, np.full(len(table), 2), stride)
    weights = table_weights(model, table) / table.gtp
    size = max(candidates.traits.gradients.accumulated_bytes, job.training.storage_bytes)
    seconds = collective_seconds(machine, "all_reduce", size * weights, links)
    return np.asarray(copied * (table.pp > 1) * seconds)


def adds_to_a_copy(embedding: FloatColumn | IntColumn, head: FloatColumn | IntColumn) -> BoolColumn:
    """Does a rank with so many embeddings and heads hold one copy of the token table of two?

    A rank with both has one table for both. Source: as `table_sum_seconds`.
    """
    return np.asarray((embedding > 0) != (head > 0))


def splits_backward(table: LayoutTable) -> BoolColumn:
    """Does the schedule of each row run weight gradients as passes of their own?"""
    return np.array([SCHEDULES[name].splits_backward for name in SCHEDULE_NAMES])[table.schedule]


def waits_for_messages(traits: RuntimeTraits, table: LayoutTable) -> BoolColumn:
    """Does a rank compute nothing while it sends or receives? Source: that of the runtime."""
    return np.array([name in traits.pipeline.waits_for_messages for name in SCHEDULE_NAMES])[
        table.schedule
    ]


def unsynchronised(traits: RuntimeTraits, table: LayoutTable) -> BoolColumn:
    """Does each rank start its next step without waiting for the last rank?

    Then steps follow one another as far apart as the longest time of any rank from its first pass
    to its last, not as the first pass of rank 0 and the last pass of any rank.
    Source: Qi et al., arXiv:2401.10241, sections 2.3 and 4 (optimizer post-validation).
    """
    return np.array([name in traits.pipeline.unsynchronised for name in SCHEDULE_NAMES])[
        table.schedule
    ]


def layer_seconds(block: Block, key: IntColumn, recompute: FloatColumn) -> LayerSeconds:
    """Gather one kind of block for each row; no weight is sharded yet.

    Source: rows with one key have the same block, so a row takes the seconds of its key; selective
    recomputation runs in the backward pass and adds to it.
    """
    forward, backward = block.forward.total[key], block.backward.total[key] + recompute
    return LayerSeconds(
        forward,
        backward,
        weight=block.weight[key],
        recompute_forward=block.recompute_forward.total[key],
        recompute=recompute,
        traffic=np.zeros(len(key)),
        waiting=np.zeros(len(key)),
    )


def rank_seconds(seconds: RowSeconds, ranks: Ranks) -> RankSeconds:
    """Work of each rank class and the way to it.

    Source: blocks of a rank follow one another, so each kind adds its number times its seconds; the
    way to rank r crosses the blocks before it and r messages, and home goes without weight
    gradients where those run apart.
    """
    behind, messages = ranks.rank > 0, ranks.rank * seconds.p2p
    reach, home = messages + behind * seconds.embedding.forward, messages.copy()
    home += behind * seconds.embedding.backward
    forward, backward = np.zeros((2, *reach.shape))
    for layer, before, again, again_before in zip(
        seconds.layers, ranks.before, ranks.recomputed, ranks.recomputed_before, strict=True
    ):
        reach += before * layer.forward
        home += before * layer.backward
        if again.any():
            backward += again * layer.recompute_forward
            home += again_before * layer.recompute_forward
    for count, block in zip(ranks.by_kind, seconds.by_kind, strict=True):
        if count.any():
            forward += count * block.forward
            backward += count * block.backward
    weight: FloatColumn = np.broadcast_to(0.0, home.shape)
    if seconds.splits_backward.any():
        before_it: list[FloatColumn | BoolColumn] = [*ranks.before, behind]
        weight = seconds.splits_backward * _weight_seconds(seconds, ranks.by_kind)
        home -= seconds.splits_backward * _weight_seconds(seconds, before_it)
    return RankSeconds(
        forward,
        backward,
        weight=weight,
        reach=reach,
        home=home,
        unsynchronised=seconds.unsynchronised,
    )


def _weight_seconds(seconds: RowSeconds, counts: Iterable[FloatColumn | BoolColumn]) -> FloatColumn:
    """Weight gradients of so many blocks of each kind.

    Source: a rank computes one weight gradient at a time, so the seconds of each kind count as
    often as it has such blocks.
    """
    some = zip(counts, seconds.by_kind, strict=False)
    return np.asarray(sum((count * block.weight for count, block in some), start=np.zeros(())))


def pipeline_lower_bound(
    work: RankSeconds, ranks: Ranks, table: LayoutTable, microbatches: IntColumn
) -> FloatColumn:
    """Seconds no order of the schedule's passes can beat.

    Every schedule present bounds all rows, which is faster than gathering its own; a row keeps that
    of its schedule, a path through the order, and no run is shorter than any of its paths.
    Source: that of each schedule's bound.
    """
    rows = Work(work, ranks.rank, table.pp, microbatches)
    bound = np.zeros(len(table))
    for code in np.flatnonzero(np.bincount(table.schedule)).tolist():
        own = SCHEDULES[SCHEDULE_NAMES[code]].bound(rows)
        bound = np.where(table.schedule == code, own, bound)
    return bound

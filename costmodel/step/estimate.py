"""From a job and candidate layouts to seconds and bytes. It reads like the sum it is.

step = pipeline + data-parallel traffic + optimizer + offload + overhead

Two evaluations share every formula: `estimate` bounds the pipeline of every row from below in
closed form, `explicit` runs the finalists' schedules on a clock. All else is equal in both, so
an explicit step time is never below its bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from trainplan.costmodel.blocks import Blocks, Copies, RowBlocks, row_blocks
from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.comm import (
    collective_seconds,
    group,
    link_speed,
    message_seconds,
    pipeline_neighbour,
)
from trainplan.costmodel.layouts import num_microbatches
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory import (
    BlockParams,
    MemoryTable,
    RankParams,
    held_params,
    rank_memory,
    rank_params,
    updated_params,
)
from trainplan.costmodel.model import MIXER_COUNTS
from trainplan.costmodel.pipeline import (
    LayerSeconds,
    Ranks,
    RowSeconds,
    adds_to_a_copy,
    layer_seconds,
    pipeline_lower_bound,
    rank_seconds,
    ranks_of,
    splits_backward,
    table_sum_seconds,
    unsynchronised,
    waits_for_messages,
)
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.schedules import RankSeconds, earliest_ends
from trainplan.costmodel.shards import matrix_shards
from trainplan.costmodel.step.offloaded import FLOOR, LONGEST_PATH, lanes_seconds, moving_rows
from trainplan.costmodel.step.tower import with_tower
from trainplan.costmodel.traffic import (
    PassTraffic,
    Unit,
    contention_of,
    exposed_seconds,
    free_window,
    matrix_traffic,
    offload_seconds,
    over_micro_batches,
    overlapped_layer,
    rank_optimizer_seconds,
    rank_update_seconds,
    step_traffic_seconds,
    whole_sum_seconds,
)


@dataclass(frozen=True, slots=True)
class Costed(Candidates):
    """Seconds of the blocks of a table of layouts, and the memory of their ranks."""

    gathered: RowBlocks
    params: BlockParams
    """Of one block of each kind."""
    ranks: Ranks
    held: RankParams
    seconds: RowSeconds
    microbatches: IntColumn
    memory: MemoryTable

    @classmethod
    def of(cls, candidates: Candidates, *, merged: bool = True) -> Costed:
        """As `price`, without what ranks send after their passes, and without a sum."""
        candidates = candidates.as_executed
        gathered, params = row_blocks(candidates), _params(candidates)
        ranks = ranks_of(candidates.job, candidates.table) if merged else _every_rank(candidates)
        held = rank_params(ranks, params)
        return Costed(
            *candidates.shared,
            candidates.table,
            gathered=gathered,
            params=params,
            ranks=ranks,
            held=held,
            seconds=row_seconds(candidates, blocks=gathered, params=params),
            microbatches=num_microbatches(candidates.job, candidates.table),
            memory=rank_memory(candidates, gathered, ranks=ranks, params=params, held=held),
        )

    @property
    def key(self) -> IntColumn:
        """Row of `blocks` that belongs to each layout."""
        return self.gathered.key

    @property
    def blocks(self) -> Blocks:
        """Blocks of distinct keys."""
        return self.gathered.kinds


@dataclass(frozen=True, slots=True)
class Priced(Costed):
    """Everything known of a table of layouts before its schedules are run."""

    work: RankSeconds
    traffic: FloatColumn
    """Gradient reduction and parameter gather that outlast each rank class's passes."""
    dp_comm: FloatColumn
    """Seconds they add to the bound of the pipeline."""
    optimizer: FloatColumn
    offload: FloatColumn
    step_seconds: FloatColumn
    """Proven lower bound of the step time."""

    @property
    def update(self) -> FloatColumn:
        """Seconds of the optimizer step, offloaded or not.

        Source: the update of what is on the device and that of the offloaded share are taken one
        after the other, so their seconds add up.
        """
        return self.optimizer + self.offload

    def with_lanes_run(self) -> Priced:
        """The same with the longest path through the lanes off the GPU for its floor.

        The bound of a row stays what it is.
        """
        moving = moving_rows(self)
        if not moving.any():
            return self
        seconds = lanes_seconds(self, LONGEST_PATH)
        return replace(self, offload=np.where(moving, seconds, self.offload))


def price(candidates: Candidates, *, merged: bool = True) -> Priced:
    """Time (a lower bound) and memory (exact within the model) of every row.

    `merged=False` keeps every pipeline rank separate instead of classes of equal ranks.
    """
    one = Costed.of(candidates, merged=merged)
    machine, table, ranks, microbatches = one.machine, one.table, one.ranks, one.microbatches
    updated = updated_params(table, one.held)
    work = rank_seconds(one.seconds, ranks)
    bound = pipeline_lower_bound(work, ranks, table, microbatches)
    traffic = step_traffic_seconds(one, one.held, work)
    one_copy = adds_to_a_copy(ranks.embedding, ranks.head)
    traffic = traffic + one_copy * table_sum_seconds(one)
    traffic = traffic + whole_sum_seconds(one, ranks)
    dp_comm = exposed_seconds(bound, earliest_ends(work, microbatches), traffic)
    update = rank_optimizer_seconds(machine, table, one.held, updated)
    optimizer = (update + rank_update_seconds(one, machine, ranks)).max(axis=0)
    offload = offload_seconds(machine, table, updated)
    priced = Priced(
        *one.shared,
        table,
        gathered=one.gathered,
        params=one.params,
        ranks=ranks,
        held=one.held,
        seconds=one.seconds,
        microbatches=microbatches,
        memory=one.memory,
        work=work,
        traffic=traffic,
        dp_comm=dp_comm,
        optimizer=optimizer,
        offload=offload,
        step_seconds=with_overhead(machine, bound + dp_comm + optimizer + offload),
    )
    moving = moving_rows(priced)
    if not moving.any():
        return priced
    offload = np.where(moving, lanes_bound_seconds(priced), offload)
    explained = bound + dp_comm + optimizer + offload
    return replace(priced, offload=offload, step_seconds=with_overhead(machine, explained))


def lanes_bound_seconds(priced: Priced) -> FloatColumn:
    """Seconds that lanes off the GPU add to the bound at least.

    Source: derived; longer passes hide more of the traffic behind them and more of the copies, so
    no recomputation takes less than its passes and the larger of both, and `dp_comm` is added
    separately.
    """
    return np.maximum(0.0, lanes_seconds(priced, FLOOR) - priced.dp_comm)


@remembered
def _params(candidates: Candidates) -> BlockParams:
    """Parameters of every kind of block on one rank."""
    return held_params(candidates.job, candidates.table)


@remembered
def _every_rank(candidates: Candidates) -> Ranks:
    """Coefficients of every rank, none merged."""
    return ranks_of(candidates.job, candidates.table, merged=False)


def row_seconds(candidates: Candidates, *, blocks: RowBlocks, params: BlockParams) -> RowSeconds:
    """Seconds of every kind of block for each row.

    The ends are sharded too; their traffic overlaps the decoder layer next to them, taken
    without its recomputation, so that more work never hides more of it. Copies to the host and back
    overlap all of a layer.
    """
    machine, traits, table = candidates.machine, candidates.traits, candidates.table
    kinds, key, nothing = blocks.kinds, blocks.key, np.zeros(len(table))
    every = [
        *map(layer_seconds, kinds.layers, repeat(key), (one.seconds for one in blocks.layers)),
        layer_seconds(kinds.embedding, key, nothing),
        layer_seconds(kinds.head, key, nothing),
        layer_seconds(kinds.mtp, key, blocks.mtp.seconds),
    ]
    if (table.zero_stage >= 2).any():
        units, order = _units(traits, params, nothing), candidates.job.model.kind_of_layer
        contention, plain = contention_of(candidates), every

        def sharded(traffic: list[PassTraffic]) -> list[LayerSeconds]:
            windows = list(plain)
            for end, layer in ((-3, order[0]), (-2, order[-1])):
                alone = layer_seconds(kinds.layers[layer], key, nothing)
                windows[end] = free_window(alone, traffic[layer])
            three = zip(plain, traffic, windows, strict=True)
            return [overlapped_layer(contention, *one) for one in three]

        every = over_micro_batches(candidates, units, sharded)
    if matrix_shards(table):
        contention, windows = contention_of(candidates), list(every)
        windows[-2] = every[candidates.job.model.kind_of_layer[-1]]  # the head's weights come there
        traffic = matrix_traffic(candidates)
        every = [
            overlapped_layer(contention, *one) for one in zip(every, traffic, windows, strict=True)
        ]
    *layers, embedding, head, mtp = every
    embedding = with_tower(candidates, embedding, kinds.tower, key=key, params=params.tower)
    if table.offload_modules.any():
        pairs = zip(layers, blocks.layers, strict=True)
        layers = [_copying(machine, layer, block.copies) for layer, block in pairs]
        mtp = _copying(machine, mtp, blocks.mtp.copies)
    sent = message_seconds_of(candidates)
    return RowSeconds(
        tuple(layers),
        embedding,
        head,
        mtp,
        p2p=p2p_seconds(candidates),
        sending=sent * waits_for_messages(traits, table),
        splits_backward=splits_backward(table),
        unsynchronised=unsynchronised(traits, table),
    )


def _units(traits: RuntimeTraits, params: BlockParams, nothing: FloatColumn) -> list[Unit]:
    """What is gathered together of each kind of block.

    Source: `Sharding.ends_at_root`, `Fetches.weights`.
    """
    matrices, root = traits.sharding.fetches.weights, traits.sharding.ends_at_root
    pairs = zip(_sorts(params, nothing), _sorts(params.with_gradients, nothing), strict=True)
    *layers, embedding, head, mtp = pairs
    return [
        *(Unit(held, matrices, trained=own) for held, own in layers),
        Unit(embedding[0], root=root, trained=embedding[1]),
        Unit(head[0], root=root, trained=head[1]),
        Unit(mtp[0], matrices, trained=mtp[1]),
    ]


def _sorts(params: BlockParams, nothing: FloatColumn) -> list[RankParams]:
    """Parameters of each kind of block, experts separate."""
    return [
        *map(RankParams, params.layers, params.experts),
        RankParams(params.embedding, nothing),
        RankParams(params.head, nothing),
        RankParams(params.mtp, params.mtp_experts),
    ]


def _copying(machine: Machine, layer: LayerSeconds, copies: Copies) -> LayerSeconds:
    """A layer with what its copies to the host and back add to each pass.

    Source: `LayerSeconds.overlapped_with_copy`; every byte that crosses the bus is also read from,
    or written to, device memory.
    """
    copied = copies.copied_bytes
    return layer.overlapped_with_copy(
        copied / machine.host_bytes_per_second, copied / machine.memory_bytes_per_second
    )


def local_seconds(machine: Machine, seconds: FloatColumn) -> FloatColumn:
    """Add what no term explains and the slowdown of large jobs; then what a calibration measured.

    Source: the three constants, and the scalars of `costmodel.calibration.fit`.
    """
    constants = machine.constants
    doublings = max(0.0, float(np.log2(machine.num_gpus / 8)))
    share = constants.overhead_fraction + constants.straggler_per_doubling * doublings
    expected = seconds * (1 + share) + constants.overhead_seconds
    return expected / machine.speed + machine.fixed_overhead_seconds


def with_overhead(machine: Machine, seconds: FloatColumn) -> FloatColumn:
    """Seconds of a step from the sum of its terms: `local_seconds`, and its share of outer steps.

    It never falls as the sum grows.
    Source: `costmodel.outer.exposed_seconds` over the steps of a round.
    """
    local = local_seconds(machine, seconds)
    if not machine.outer_seconds and machine.outer_factor == 1:
        return local
    with np.errstate(invalid="ignore"):  # no factor of infinite seconds
        return np.fmax(local, machine.outer_seconds + machine.outer_factor * local)


def without_overhead(machine: Machine, seconds: float) -> float:
    """The largest sum of the terms with no longer step: `with_overhead` turned round.

    Source: `local_seconds` is a line a + b x: its values at 0 and at 1 are a and a + b, so x =
    (seconds - a) / b; of the two lines of `with_overhead` the smaller of both solutions counts.
    """
    nothing, one = local_seconds(machine, np.array([0.0, 1.0])).tolist()
    left, factor = seconds - machine.outer_seconds, machine.outer_factor
    if machine.outer_seconds and left < 0:
        return -np.inf
    seconds = min(seconds, left / factor) if factor else seconds
    return float((seconds - nothing) / (one - nothing))


@remembered
def p2p_seconds(candidates: Candidates) -> FloatColumn:
    """Seconds of one activation between neighbouring pipeline ranks, gathered where it was cut.

    Source: Narayanan et al., arXiv:2104.04473, section 4.1; with sequence parallelism each tensor
    rank sends its slice. Section 4.1 there: the scatter and gather of messages.
    """
    machine, table = candidates.machine, candidates.table
    sent = message_seconds_of(candidates)
    if candidates.traits.experts.delays_weights:
        hidden = np.minimum(sent, delayed_weight_seconds(candidates)) / 2
        return np.asarray(sent - hidden)
    if not candidates.traits.pipeline.scatters_messages:
        return sent
    cut = (table.pp > 1) & (table.sequence_parallel == 0)
    whole = sent_bytes(candidates) * table.tp
    links = group(machine, table.tp, np.ones_like(table.tp))
    return np.asarray(sent + cut * collective_seconds(machine, "all_gather", whole, links))


def delayed_weight_seconds(candidates: Candidates) -> FloatColumn:
    """Seconds at least that the weight gradients of one mixer take, behind a stage's last message.

    Half of the messages of a step are gradients, on any way from the first rank and home: those
    hide behind them. Products are no faster than the peak.
    Source: Megatron-LM @d98e8a64 `models/common/model_chunk_schedule_plan.py`, run, whose last
    wgrad of a chunk is left until the gradient is sent (is_last_layer_in_bwd).
    """
    job, table = candidates.job, candidates.table
    least = min(MIXER_COUNTS[kind.mixer].divided(kind) for kind in job.model.kinds)
    trained = least * (job.model.trained is None)
    tokens = table.micro_batch_size * job.training.seq_length / table.cp
    return np.asarray(2 * tokens * trained / table.tp / candidates.machine.peak_flop_per_second)


@remembered
def message_seconds_of(candidates: Candidates) -> FloatColumn:
    """Seconds in which one activation, or a rank's slice of it, is on its way.

    Source: as `p2p_seconds`.
    """
    machine, table = candidates.machine, candidates.table
    stride = table.tp * table.cp * table.dp
    crossing = pipeline_neighbour(machine, table.pp, stride)
    nic = group(machine, np.ones_like(table.pp), stride).nic_bytes_per_second
    sent = sent_bytes(candidates)
    link = link_speed(machine, stride)
    return np.where(table.pp > 1, message_seconds(machine, sent, crossing, link, nic), 0.0)


def sent_bytes(candidates: Candidates) -> FloatColumn:
    """Bytes of one activation that one GPU sends to the next stage. Source: as `p2p_seconds`."""
    job, table = candidates.job, candidates.table
    sliced = (table.sequence_parallel == 1) | candidates.traits.pipeline.scatters_messages
    shards = np.where(sliced, table.tp, 1) * table.cp
    tokens = table.micro_batch_size * job.training.seq_length / shards
    return np.asarray(candidates.machine.storage_bytes * tokens * job.model.hidden_size)

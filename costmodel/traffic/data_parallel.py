"""Traffic of weights and gradients over the replicas, what of it is overlapped, and the update."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import (
    BoolColumn,
    ClassRows,
    FloatColumn,
    IntColumn,
    Rows,
    distinct,
)
from trainplan.costmodel.comm import Group, Rate, choose, collective_rate, group, only
from trainplan.costmodel.kernels import ADAM_SHARD_BYTES, optimizer_bytes_per_second
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory import RankParams, sums_whole
from trainplan.costmodel.model import embedding_params, num_parameters
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.schedules import RankSeconds
from trainplan.costmodel.shard_groups import ShardGroups, shard_columns, shard_groups
from trainplan.costmodel.shards import matrix_shards
from trainplan.costmodel.traffic.buckets import bucket_calls, bucket_shares
from trainplan.costmodel.traffic.copies import Copies, copies_of


@dataclass(frozen=True, slots=True)
class Overlap:
    """What traffic of a rank can hide behind, for each row."""

    least: FloatColumn
    """Exposed in any case, of each second of traffic; above 1 where others wait in turn."""
    window: FloatColumn
    """Passes of one micro batch through the rank that the rest overlaps."""

    def exposed(self, traffic: FloatColumn, compute: FloatColumn) -> FloatColumn:
        """Seconds by which traffic outlasts passes of `compute` seconds a micro batch.

        Source: traffic of T seconds overlaps `window` passes of C seconds and outlasts them by T
        - window C, but never by less than the part `least` T that overlaps nothing.
        """
        return np.maximum(self.least * traffic, traffic - self.window * compute)


@remembered
def reduction_overlap(candidates: Candidates) -> Overlap:
    """What the reduction of gradients hides behind.

    In buckets behind the last backward pass. Virtual stages that reduce whole: the gradients of one
    go when the last backward pass of its last micro batch has ended, and the next stage of the rank
    ends `pp` passes later, so 1 / vpp of the traffic has nothing left to hide behind.

    FSDP that sums whole gradients under a pipeline reduces those of a stage when its last backward
    pass has ended, one unit after the other, and the stream of the passes waits for each.
    Source: `first_bucket`, `overlap_window`, `Sharding.whole_stages`; PyTorch v2.6.0
    `distributed/pipelining/stage.py`, run_post_backward (later an op of the schedule,
    REDUCE_GRAD), and `fsdp/_fully_shard/_fsdp_param_group.py`, post_backward.
    """
    traits, table, (dense, _) = candidates.traits, candidates.table, shard_groups(candidates)
    overlapped = traits.sharding.overlaps_gradients & ~sums_whole(traits, table, dense)
    return _overlap(candidates, np.asarray(overlapped))


@remembered
def gather_overlap(candidates: Candidates) -> Overlap:
    """What the gather of updated weights hides behind.

    In buckets behind the first forward pass. Virtual stages that gather whole: the first one's
    weights are there before anything runs, those of each further one are due `pp` passes later.
    Without virtual stages all ranks of a pipeline but the first start theirs when their first micro
    batch has come, and gather before they pass it on: it waits for pp - 1 gathers in turn.
    Source: `first_bucket`, `overlap_window`, `Sharding.whole_stages`,
    `Sharding.gathers_separately`.
    """
    traits, table = candidates.traits, candidates.table
    pipelined = (table.pp > 1) & (table.vpp == 1) & traits.sharding.whole_stages
    overlapped = np.full(len(table), traits.sharding.overlaps_parameters) & ~(
        pipelined & traits.sharding.gathers_separately
    )
    usual = _overlap(candidates, overlapped)
    waits = overlapped & pipelined
    return Overlap(
        least=np.where(waits, table.pp - 1.0, usual.least),
        window=np.where(waits, 0.0, usual.window),
    )


def _overlap(candidates: Candidates, overlapped: BoolColumn) -> Overlap:
    """Of traffic in buckets or by virtual stages, where it is hidden at all.

    What is hidden slows the passes that it overlaps, by s = `overlap_contention` of itself.
    Source: as `reduction_overlap`; stages one by one, T traffic and C seconds of a pass: T / vpp is
    left if each goes in the pp C / vpp between two, else all but (vpp - 1) pp C / vpp of T. Of
    max(l T, T - w C), hidden s T - s max(l T, T - w C) comes on top, so l is l + s (1 - l) and w is
    (1 - s) w.
    """
    table = candidates.table
    constants, whole = (
        candidates.machine.constants,
        (table.vpp > 1) & candidates.traits.sharding.whole_stages,
    )
    shares = bucket_shares(candidates, last_bucket(candidates), constants.overlap_window)
    least = np.where(whole, 1 / table.vpp, shares.last)
    window = np.where(whole, table.pp * (1 - 1 / table.vpp), shares.window)
    slowed = constants.overlap_contention
    least, window = least + slowed * (1 - least), (1 - slowed) * window
    return Overlap(np.where(overlapped, least, 1.0), np.where(overlapped, window, 0.0))


def last_bucket(candidates: Candidates) -> float:
    """Share of the gradients in the bucket that is full when the backward pass has ended.

    Source: `first_bucket`, as fitted; of buckets that are known, the gradient of the token table is
    the last to be made, and before it half a bucket waits in the mean. PyTorch v2.13.0
    `torch/csrc/distributed/c10d/reducer.cpp`, compute_bucket_assignment_by_size.
    """
    bucket = candidates.traits.sharding.bucket_bytes
    if bucket is None:
        return candidates.machine.constants.first_bucket
    model = candidates.job.model
    width = gradient_message_bytes(candidates.machine, candidates.traits)
    waiting = width * embedding_params(model) + bucket / 2
    return min(1.0, waiting / (width * num_parameters(model)))


ZERO_GRADIENT_BYTES = 4
"""Bytes moved per accumulated fp32 gradient to zero it.

Source: a gradient of 32 bits is overwritten with zero and not read before: 4 bytes are written for
each of them.
"""


@dataclass(frozen=True, slots=True)
class StateRanks:
    """Ranks with the same states of one sort, and how many of them collectives run among."""

    gathered: IntColumn
    """From which weights are gathered: in every pass those that share them, else once a step."""
    scattered: IntColumn
    """Over which gradients are: in every backward pass, else once a step."""
    updated: IntColumn
    """That share the optimizer."""
    ranks: IntColumn
    stride: IntColumn

    def wires(self, machine: Machine) -> Wires:
        """Price of every collective of these states.

        Ranks of one shard group are neighbours, replicas of a shard are the most distant.
        Source: Megatron-LM parallel_state.py: dp-cp group at stride tp, expert dp at stride etp ep.
        """
        scattered = group(machine, self.scattered, self.stride)
        alike = np.array_equal(self.gathered, self.scattered)
        gathered = scattered if alike else group(machine, self.gathered, self.stride)
        copies = group(machine, self.ranks // self.scattered, self.stride * self.scattered)
        rails = _rails(machine, scattered)
        return Wires(
            scatter=collective_rate(machine, "reduce_scatter", scattered),
            across=collective_rate(machine, "all_reduce", copies),
            together=collective_rate(machine, "all_reduce", scattered),
            gather=collective_rate(machine, "all_gather", gathered),
            gathered=self.gathered.astype(np.float64),
            shards=self.scattered.astype(np.float64),
            ranks=self.ranks.astype(np.float64),
            rails=rails if alike else np.maximum(rails, _rails(machine, gathered)),
            states=self,
        )


RAILS = 8
"""GPUs of a usual node, each with a rail. Source: the nodes `fsdp_contention` was fitted on."""


def _rails(machine: Machine, ranks: Group) -> FloatColumn:
    """As `Wires.rails`; a group of one domain, and of as many GPUs as a node has, has all.

    Source: as there; n members of a node of N GPUs send on n of its N rails.
    """
    share = ranks.inside / min(RAILS, machine.domain_gpus)
    return np.where(ranks.nodes > 1, np.minimum(1.0, share), 1.0)


@dataclass(frozen=True, slots=True)
class Wires:
    """Collectives of one sort of states."""

    scatter: Rate
    """Of gradients to the ranks that share a copy."""
    across: Rate
    """Sums of the same shard in all replicas."""
    together: Rate
    """Sums of whole gradients of the ranks that share a copy."""
    gather: Rate
    """Of weights among those that share them."""
    gathered: FloatColumn
    """Ranks from which weights are gathered."""
    shards: FloatColumn
    """Ranks over which gradients are scattered."""
    ranks: FloatColumn
    """All that sum one gradient."""
    states: StateRanks
    rails: FloatColumn
    """Share of a node's rails that a group between nodes sends on, and so of NCCL's channels.

    Source: derived; NVIDIA/nccl `src/graph/search.cc`, ncclTopoCompute: a channel leaves a node by
    one NIC, so a group with a member in each has as many as one NIC feeds, each a block on an SM.
    """

    def within(self, *, sharded: BoolColumn, whole: BoolColumn) -> Rate:
        """As `reduction`, among the ranks that share a copy alone."""
        return choose(whole, self.together, only(sharded, self.scatter))

    def reduction(self, *, sharded: BoolColumn, whole: BoolColumn) -> Rate:
        """Price of reducing a gradient: scattered and then summed over replicas, or summed whole.

        Scatter and sum use other links and run for different layers at one time, so the slower
        of both counts, as of both sums of what is whole; no published run in `examples/accuracy`
        shards in groups.
        Source: Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 3.2.2 (hybrid sharding).
        """
        scatter = only(sharded, self.scatter)
        across = only(sharded, self.across.of_part(self.shards))
        return choose(
            whole, self.together.overlapped_with(self.across), scatter.overlapped_with(across)
        )


def gradient_message_bytes(machine: Machine, traits: RuntimeTraits) -> int:
    """Bytes of one gradient on the wire: never fewer than those of an fp32 run's weights."""
    fp32 = machine.storage_bytes == BYTES_FP32
    return BYTES_FP32 if fp32 else traits.gradients.message_bytes


def state_ranks(
    table: LayoutTable, groups: tuple[ShardGroups, ShardGroups]
) -> tuple[StateRanks, StateRanks]:
    """Of dense and of expert states: data and context parallel ranks together.

    Source: `ShardGroups`; ZeRO-3 gathers weights in every pass, ZeRO-2 and 3 scatter gradients.
    """
    strides = table.tp * table.gtp, table.etp * table.ep * table.egtp
    pairs = zip(groups, strides, strict=True)
    dense, expert = (_state_ranks(table.zero_stage, *pair) for pair in pairs)
    return dense, expert


def _state_ranks(stage: IntColumn, groups: ShardGroups, stride: IntColumn) -> StateRanks:
    """Of one sort, at their stride."""

    def whole(ranks: FloatColumn) -> IntColumn:
        """One at least."""
        return np.maximum(1, ranks.astype(np.int64))

    return StateRanks(
        gathered=whole(np.where(stage == 3, groups.weights, groups.optimizer)),
        scattered=whole(np.where(stage >= 2, groups.gradients, groups.optimizer)),
        updated=whole(groups.optimizer),
        ranks=whole(groups.ranks),
        stride=stride,
    )


def step_traffic_seconds(
    candidates: Candidates, params: RankParams, work: RankSeconds
) -> FloatColumn:
    """Seconds of gradient reduction and parameter gather that outlast each rank class's passes.

    ZeRO-0 all-reduces gradients; ZeRO-1 reduce-scatters them and gathers parameters; ZeRO-2 only
    gathers, since it reduces in every micro batch; ZeRO-3 does both there. With overlap the
    reduction hides behind backward passes and the gather behind forward passes of the rank class.
    Source: Rajbhandari et al., arXiv:1910.02054, section 7; `costmodel.traffic.data_parallel`.
    """
    traffic = step_traffic(candidates, params)
    reduction = reduction_overlap(candidates)
    gather = gather_overlap(candidates)
    return reduction.exposed(traffic.reduce, work.backward) + gather.exposed(
        traffic.gather, work.forward
    )


@dataclass(frozen=True, slots=True)
class StepTraffic:
    """Seconds on the wire once a step, hidden or not."""

    reduce: ClassRows
    gather: ClassRows


def step_traffic(candidates: Candidates, params: RankParams) -> StepTraffic:
    """Gradient reduction and parameter gather of each rank class.

    Source: as `step_traffic_seconds`.
    """
    machine, traits = candidates.machine, candidates.traits
    params = params.with_gradients
    reduce, gather = np.zeros((2, 1, 1))
    weight_bytes = traits.sharding.weight_message_bytes or machine.storage_bytes
    _, key, some = by_groups(candidates)
    held = ((params.shared, _dense_rates), (params.expert, _expert_rates))
    for count, rates in held if params.has_experts else held[:1]:
        reduction, gathering, made = rates(some)
        width, copies = gradient_message_bytes(machine, traits), made.take(key)
        calls = bucket_calls(candidates, count, experts=count is params.expert)
        reduction, gathering = (one.take(key).in_calls(calls) for one in (reduction, gathering))
        reduce = reduce + reduction.seconds(width * count) + copies.reduce * count
        gather = gather + gathering.seconds(weight_bytes * count) + copies.gather * count
    return StepTraffic(reduce, gather)


def by_groups(candidates: Candidates) -> tuple[IntColumn, IntColumn, Candidates]:
    """Rows that differ in what prices traffic of states: which, each row's number, and those.

    Source: `shard_columns`, the degrees, and the stages of a rank.
    """
    if len(candidates.table) == 1:
        return (nothing := np.zeros(1, dtype=np.int64)), nothing, candidates
    return _by_groups(candidates)


@remembered
def _by_groups(candidates: Candidates) -> tuple[IntColumn, IntColumn, Candidates]:
    table = candidates.table
    degrees = (table.tp, table.pp, table.cp, table.dp, table.ep, table.etp, table.vpp)
    one, key = distinct(*degrees, *matrix_shards(table), *shard_columns(table))
    return one, key, candidates.take(one)


def exposed_seconds(makespan: Rows, ends: ClassRows, traffic: ClassRows) -> Rows:
    """Seconds by which the traffic of the ranks outlasts the pipeline.

    A rank sends as soon as its own last pass ends (`ends`), while others still run. The step ends
    when the last rank has sent, so more work on any rank never makes it end earlier.
    Source: the step ends at max(ends + traffic) over ranks, or with the makespan if that is later;
    the traffic adds what lies between the two.
    """
    return np.asarray(np.maximum(0.0, (ends + traffic).max(axis=0) - makespan))


@remembered
def both_wires(candidates: Candidates) -> tuple[Wires, Wires]:
    """Collectives of dense and of expert states. Source: as `state_ranks`."""
    dense, expert = state_ranks(candidates.table, shard_groups(candidates))
    return dense.wires(candidates.machine), expert.wires(candidates.machine)


@remembered
def _dense_rates(candidates: Candidates) -> tuple[Rate, Rate, Copies]:
    return _step_rates(candidates, both_wires(candidates)[0])


@remembered
def _expert_rates(candidates: Candidates) -> tuple[Rate, Rate, Copies]:
    return _step_rates(candidates, both_wires(candidates)[1])


def _step_rates(candidates: Candidates, wires: Wires) -> tuple[Rate, Rate, Copies]:
    """Price of the gradient reduction and of the parameter gather that each row's stage pays.

    With the copies around them.

    Source: `Sharding.whole_stages`; each virtual stage of a rank is one call of either.
    """
    traits, table = candidates.traits, candidates.table
    replicated, sharded = table.zero_stage == 0, table.zero_stage == 1
    gathers = sharded | ((table.zero_stage == 2) & (not traits.sharding.gathers_every_pass))
    whole = replicated | (sharded & traits.sharding.reduces_whole_gradients)
    reduction = wires.reduction(sharded=sharded, whole=whole)
    gathering = only(gathers, wires.gather)
    calls = np.where(traits.sharding.whole_stages, table.vpp, 1)
    copies = copies_of(candidates, wires.gathered, wires.shards, wires.ranks)
    once = Copies(gather=gathers * copies.gather, reduce=(replicated | sharded) * copies.reduce)
    states, apart = wires.states, table.zero_stage >= 2
    if traits.sharding.sums_copies_once and (states.ranks > states.scattered).any():
        reduction = choose(apart, _among_copies(candidates.machine, states), reduction)
    if (states.updated > states.gathered).any():
        gathering = choose(
            table.zero_stage == 3, _after_update(candidates.machine, states), gathering
        )
    return reduction.in_calls(calls), gathering.in_calls(calls), once


def _among_copies(machine: Machine, states: StateRanks) -> Rate:
    """Once a step under ZeRO-2 and 3: gradients of the copies of what is scattered in every pass.

    Scattered over the copies that share an optimizer, and summed on those that repeat it.
    Source: `Sharding.sums_copies_once`, `Sharding.over_replicas`.
    """
    more = states.updated // states.scattered
    sharing = group(machine, more, states.stride * states.scattered)
    repeats = group(machine, states.ranks // states.updated, states.stride * states.updated)
    scatter = collective_rate(machine, "reduce_scatter", sharing).of_part(
        states.scattered.astype(np.float64)
    )
    sums = collective_rate(machine, "all_reduce", repeats).of_part(
        states.updated.astype(np.float64)
    )
    return scatter.overlapped_with(sums)


def _after_update(machine: Machine, states: StateRanks) -> Rate:
    """Updated weights, from those that share an optimizer to those that share less of the weights.

    Source: as `_among_copies`; under ZeRO-2 and less `gathered` are those already, and weights
    are gathered from all.
    """
    more = states.updated // states.gathered
    sharing = group(machine, more, states.stride * states.gathered)
    return collective_rate(machine, "all_gather", sharing).of_part(
        states.gathered.astype(np.float64)
    )


def rank_optimizer_seconds(
    machine: Machine, table: LayoutTable, params: RankParams, updated: FloatColumn
) -> FloatColumn:
    """Seconds of zeroing, clipping and Adam on each rank class, all on the GPU.

    Source: memory traffic at `optimizer_bytes_per_second`.
    """
    whole = np.where(table.zero_stage < 2, float(ZERO_GRADIENT_BYTES), 0.0)
    moved = updated * (ADAM_SHARD_BYTES + ZERO_GRADIENT_BYTES - whole)
    moved += params.with_gradients.weighted(whole, whole)
    return np.asarray(moved / optimizer_bytes_per_second(machine))

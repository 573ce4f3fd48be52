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
from trainplan.costmodel.memory import RankParams, shard_ranks, sums_whole
from trainplan.costmodel.model import embedding_params, num_parameters
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.schedules import RankSeconds
from trainplan.costmodel.shards import matrix_shards
from trainplan.costmodel.traffic.copies import Copies, copies_of


@dataclass(frozen=True, slots=True)
class Overlap:
    """What traffic of a rank can hide behind, for each row."""

    least: FloatColumn
    """Exposed in any case, of each second of traffic; above 1 where others wait in turn."""
    window: FloatColumn
    """Passes of one micro batch through the rank that the rest runs beside."""

    def exposed(self, traffic: FloatColumn, compute: FloatColumn) -> FloatColumn:
        """Seconds by which traffic outlasts passes of `compute` seconds a micro batch.

        Source: traffic of T seconds runs beside `window` passes of C seconds and outlasts them by T
        - window C, but never by less than the part `least` T that nothing runs beside.
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
    traits, table = candidates.traits, candidates.table
    overlapped = traits.sharding.overlaps_gradients & ~sums_whole(traits, table, shard_ranks(table))
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

    What is hidden slows the passes that it runs beside, by s = `overlap_contention` of itself.
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
    least = np.where(whole, 1 / table.vpp, last_bucket(candidates))
    window = np.where(whole, table.pp * (1 - 1 / table.vpp), constants.overlap_window)
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
class StateGroups:
    """Communicators of one sort of states."""

    shard: Group
    """Ranks that share one copy: all replicas, or those of one HSDP group."""
    replica: Group
    """Ranks that hold the same shard under HSDP; one rank without it."""
    shards: FloatColumn

    def wires(self, machine: Machine) -> Wires:
        """Price of every collective of these states."""
        return Wires(
            scatter=collective_rate(machine, "reduce_scatter", self.shard),
            across=collective_rate(machine, "all_reduce", self.replica),
            together=collective_rate(machine, "all_reduce", self.shard),
            gather=collective_rate(machine, "all_gather", self.shard),
            shards=self.shards,
            ranks=self.shards * self.replica.size,
            rails=_rails(machine, self.shard),
            copies=self.replica,
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
    shards: FloatColumn
    ranks: FloatColumn
    """All that sum one gradient."""
    copies: Group
    """Ranks with the same shard."""
    rails: FloatColumn
    """Share of a node's rails that a group between nodes sends on, and so of NCCL's channels.

    Source: derived; NVIDIA/nccl `src/graph/search.cc`, ncclTopoCompute: a channel leaves a node by
    one NIC, so a group with a member in each has as many as one NIC feeds, each a block on an SM.
    """

    def scatter_of(self, sharded: BoolColumn) -> Rate:
        """Price of scattering a gradient among the ranks that share a copy alone."""
        return only(sharded, self.scatter)

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


def state_groups(machine: Machine, table: LayoutTable) -> tuple[StateGroups, StateGroups]:
    """Communicators of dense and of expert states: data and context parallel ranks together.

    Ranks of one shard group are neighbours, replicas of a shard lie furthest apart.
    Source: Megatron-LM parallel_state.py: dp-cp group at stride tp, expert dp at stride etp ep.
    """
    dense, experts = _dense_ranks(table), _expert_ranks(table)
    return _state_group(machine, table, dense), _state_group(machine, table, experts)


def _dense_ranks(table: LayoutTable) -> tuple[IntColumn, IntColumn]:
    """Ranks with the same dense states, and their stride. Source: as `state_groups`."""
    return table.dp * table.cp // table.gtp, table.tp * table.gtp


def _expert_ranks(table: LayoutTable) -> tuple[IntColumn, IntColumn]:
    """Ranks with the same expert states, and their stride. Source: as `state_groups`."""
    stride = table.etp * table.ep * table.egtp
    return np.maximum(1, table.tp * table.cp * table.dp // stride), stride


def _state_group(
    machine: Machine, table: LayoutTable, same: tuple[IntColumn, IntColumn]
) -> StateGroups:
    """Communicators of ranks with the same states, at their stride."""
    (ranks, stride), replicas = same, table.dp_replicate
    if (replicas > 1).any():
        replicas = np.where(table.zero_stage == 0, 1, replicas)
    shards = np.maximum(1, ranks // replicas)
    return StateGroups(
        shard=group(machine, shards, stride),
        replica=group(machine, ranks // shards, stride * shards),
        shards=shards.astype(np.float64),
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
    machine, traits, table = candidates.machine, candidates.traits, candidates.table
    params = params.with_gradients
    reduce, gather = np.zeros((2, 1, 1))
    weight_bytes = traits.sharding.weight_message_bytes or machine.storage_bytes
    degrees = (table.tp, table.cp, table.dp, table.etp * table.ep, *matrix_shards(table))
    shared = table.replicas_share_optimizer
    degrees = (*degrees, shared) if shared.any() else degrees
    one, key = distinct(*degrees, table.dp_replicate, table.zero_stage, table.vpp)
    some = candidates if len(table) == 1 else candidates.take(one)
    held = ((params.shared, _dense_rates), (params.expert, _expert_rates))
    for count, rates in held if params.has_experts else held[:1]:
        reduction, gathering, made = rates(some)
        width, copies = gradient_message_bytes(machine, traits), made.take(key)
        reduce = reduce + reduction.take(key).seconds(width * count) + copies.reduce * count
        gather = gather + gathering.take(key).seconds(weight_bytes * count) + copies.gather * count
    return StepTraffic(reduce, gather)


def exposed_seconds(makespan: Rows, ends: ClassRows, traffic: ClassRows) -> Rows:
    """Seconds by which the traffic of the ranks outlasts the pipeline.

    A rank sends as soon as its own last pass ends (`ends`), while others still run. The step ends
    when the last rank has sent, so more work on any rank never makes it end earlier.
    Source: the step ends at max(ends + traffic) over ranks, or with the makespan if that is later;
    the traffic adds what lies between the two.
    """
    return np.asarray(np.maximum(0.0, (ends + traffic).max(axis=0) - makespan))


@remembered
def dense_wires(candidates: Candidates) -> Wires:
    """Collectives of dense states. Source: as `state_groups`."""
    machine, table = candidates.machine, candidates.table
    return _state_group(machine, table, _dense_ranks(table)).wires(machine)


@remembered
def expert_wires(candidates: Candidates) -> Wires:
    """Collectives of expert states. Source: as `state_groups`."""
    machine, table = candidates.machine, candidates.table
    return _state_group(machine, table, _expert_ranks(table)).wires(machine)


@remembered
def _dense_rates(candidates: Candidates) -> tuple[Rate, Rate, Copies]:
    return _step_rates(candidates, dense_wires(candidates))


@remembered
def _expert_rates(candidates: Candidates) -> tuple[Rate, Rate, Copies]:
    return _step_rates(candidates, expert_wires(candidates))


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
    copies = copies_of(candidates, np.where(replicated, 1.0, wires.shards), wires.ranks)
    once = Copies(gather=gathers * copies.gather, reduce=(replicated | sharded) * copies.reduce)
    if traits.sharding.sums_copies_once and (table.dp_replicate > 1).any():
        summed, spread = _among_copies(candidates.machine, table, wires)
        reduction, gathering = (
            choose(table.zero_stage >= 2, summed, reduction),
            choose(table.replicas_share_optimizer == 1, spread, gathering),
        )
    return reduction.in_calls(calls), gathering.in_calls(calls), once


def _among_copies(machine: Machine, table: LayoutTable, wires: Wires) -> tuple[Rate, Rate]:
    """Once a step under ZeRO-2 and 3: gradients of the copies of a shard, and updated weights.

    Both are summed on every copy, or scattered, updated and gathered again.
    Source: `Sharding.sums_copies_once`, `Sharding.over_replicas`.
    """
    shared = table.replicas_share_optimizer == 1
    scatter, gather = (
        collective_rate(machine, name, wires.copies).of_part(wires.shards)
        for name in ("reduce_scatter", "all_gather")
    )
    return choose(shared, scatter, wires.across.of_part(wires.shards)), only(shared, gather)


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
